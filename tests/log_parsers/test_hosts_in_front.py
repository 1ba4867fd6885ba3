"""A host in front of lines is known by taking turns, whatever stands beside it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rerail.assistant.pipeline import diagnose_texts
from rerail.log_parsers.hosts_in_front import hosts_first

HOSTS = ("rl-n1", "rl-n1", "rl-n3", "rl-n3")
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.45 GiB."


def job(label: Callable[[int, str], str]) -> str:
    """Four processes on two hosts train, then one on rl-n3 runs out of GPU memory."""
    lines = [
        label(rank, HOSTS[rank]) + f"step {step} loss {2.1 - step / 10:.2f}"
        for step in range(1, 5)
        for rank in range(4)
    ]
    return "\n".join([*lines, label(2, "rl-n3") + OOM, ""])


@pytest.mark.parametrize(
    "label",
    [
        lambda r, h: f"[{'server' if h == 'rl-n3' else 'trainer'}/{h}] ",
        lambda r, h: f"[{h}:{r // 2}] ",
        lambda r, h: f"{h}/{('main', 'w1')[r % 2]} [08:14:20] ",
        lambda r, h: f"{h} trainer[{8821 + r}]: ",
    ],
)
def test_the_host_is_told_beside_what_differs(label: Callable[[int, str], str]) -> None:
    found = diagnose_texts({"job.log": job(label)}).diagnosis
    assert found.first_fault is not None
    assert (found.failure_type, found.first_fault.node) == ("cuda_oom", "rl-n3")


def test_a_number_beside_the_host_is_the_rank_where_two_processes_say_so() -> None:
    heads = [f"sm-l4-{4 + r // 8}/{r} [08:25:03] [rank{r}]: step 1" for r in (13, 0, 13, 0, 13, 0)]
    (label,) = hosts_first(heads, year=2026)
    match = label.pattern.match("sm-l4-5/13 [08:25:04] CUDA error: unknown error")
    assert match is not None
    assert (match["node"], match["rank"]) == ("sm-l4-5", "13")


@pytest.mark.parametrize(
    "heads",
    [
        [f"step-{n} loss 2.{n}" for n in range(40)],
        ["layer-1 norm 0.2", "layer-2 norm 0.1", "layer-1 norm 0.3", "layer-2 norm 0.3"] * 3,
        ["gn-1 step 1 loss 2.1", "gn-1 step 2 loss 2.0"] * 6,
        ["gn-1 begins", "gn-2 begins", *(f"step {n}" for n in range(30))],
        [*(["gn-1 step"] * 9), "srv-2 step", "gn-1 step", "srv-2 step"],
    ],
)
def test_counters_single_hosts_and_names_of_two_series_are_no_label(heads: list[str]) -> None:
    assert hosts_first(heads, year=2026) == ()


@pytest.mark.parametrize("role", ["actor", "rollout", "trainer", "engine", "learner", "npu"])
@pytest.mark.parametrize("front", ["[{}-{}] ", "{}-{}/main: ", "{}-{} main[44{}]: ", "{}-{} "])
def test_the_parts_of_a_program_are_no_hosts(role: str, front: str) -> None:
    lines = [front.format(role, n % 4, n % 4) + f"step {n // 4} loss 2.1" for n in range(40)]
    found = diagnose_texts({"job.log": "\n".join([*lines, front.format(role, 2, 2) + OOM, ""])})
    first = found.diagnosis.first_fault
    assert first is not None
    assert first.node is None
