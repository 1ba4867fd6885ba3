"""Lines in which a program says which rank, host and process it is, joined to what the kernel knows."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rerail.domain.diagnosis import Diagnosis
from rerail.knowledge_base.statements import all_forms

Run = Callable[[str | dict[str, str]], Diagnosis]

KILLED = "[Mon Aug 18 10:20:58 2025] Out of memory: Killed process 3112 (python) total-vm:214118936kB, anon-rss:1kB\n"
XID = "Aug 18 10:20:58 n07 kernel: NVRM: Xid (PCI:0000:41:00): 79, pid=1, name=x, GPU has fallen off the bus.\n"


@pytest.mark.parametrize(
    ("text", "rank", "node"),
    [
        ("INFO | rank: {r}, local_rank: 0, host: {n}, pid: {p}\n", 5, "n07"),
        ("{n}: INFO init rank={r} local_rank=1 world_size=8 hostname={n} pid={p}\n", 5, "n07"),
        ("#  Rank  {r} Group  0 Pid   {p} on        {n} device  1 [0x41] NVIDIA H100\n", 5, "n07"),
        # Two of the three say nothing of the third.
        ("INFO | local_rank: 1, host: {n}, pid: {p}\n", None, "n07"),
        ("INFO | rank: {r}, local_rank: 0, pid: {p}\n", None, "n07"),
        # One process speaks of another.
        ("INFO rank=0 sees worker host={n} pid={p}\n", None, "n07"),
    ],
)
def test_the_kernel_s_process_is_a_rank(
    diagnose: Run, text: str, rank: int | None, node: str
) -> None:
    said = text.format(r=4, n="n06", p=3110) + text.format(r=5, n="n07", p=3112)
    first = diagnose(said + "step 10 loss 2.1\n" + "n07: " + KILLED).first_fault
    assert first is not None
    assert (first.rank, first.node) == (rank, node)


def test_the_address_in_nccl_tests_is_that_of_the_kernel(diagnose: Run) -> None:
    said = "#  Rank  {} Group  0 Pid   {} on        {} device  1 [0000:41:00] NVIDIA H100\n"
    first = diagnose(said.format(4, 7, "n06") + said.format(5, 9, "n07") + XID).first_fault
    assert first is not None
    assert (first.rank, first.node) == (5, "n07")


def test_a_binding_tells_the_host_and_not_the_process() -> None:
    form = next(form for form in all_forms() if form.id == "mpi-bound")
    line = "[n07:03100] MCW rank 1 bound to socket 0[core 0[hwt 0-1]]: [BB/../..]"
    assert list(form.slots(line)) == [{"rank": "1", "node": "n07"}]


@pytest.mark.parametrize(
    "text",
    [
        "Hello from rank {r} of 8 on {n} where there are 4 allocated GPUs per node.\n",
        "Hello world from processor {n}, rank {r} out of 8 processors\n",
    ],
)
def test_a_greeting_places_a_rank(diagnose: Run, text: str) -> None:
    fault = "[rank5]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
    first = diagnose(text.format(r=0, n="n06") + text.format(r=5, n="n07") + fault).first_fault
    assert first is not None
    assert (first.rank, first.node) == (5, "n07")


def test_a_container_of_determined_is_on_the_agent_that_it_names(diagnose: Run) -> None:
    told = "{c} || INFO: [9] determined: New trial runner in (container {c}-2c3a-41) on agent {a}: {{}}\n"
    fault = "b71f03c2 || [rank=5] RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
    agents = told.format(c="8de2ca81", a="agent-2") + told.format(c="b71f03c2", a="agent-5")
    first = diagnose(agents + fault).first_fault
    assert first is not None
    assert (first.rank, first.node) == (5, "agent-5")
    unknown = diagnose(agents + fault.replace("b71f03c2", "b71f03c3")).first_fault
    assert unknown is not None
    assert unknown.node is None


def test_a_lost_peer_has_the_name_of_the_host_with_its_address(diagnose: Run) -> None:
    start = "n14:300:300 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.14<0>\n"
    lost = "n{}: [rank{}]: RuntimeError: [../gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.0.0.14]:3722{}\n"
    found = diagnose(start + lost.format(11, 0, 1) + lost.format(12, 1, 2))
    assert found.suspects.nodes == ["n14"]
    assert "n14 (10.0.0.14) closed its connections" in found.summary
    assert diagnose(lost.format(11, 0, 1) + lost.format(12, 1, 2)).suspects.nodes == ["10.0.0.14"]
