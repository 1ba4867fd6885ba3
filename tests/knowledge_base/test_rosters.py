"""Lines by which a job says who runs where, in whatever wording: read by the words in front of their values."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rerail.domain.diagnosis import Diagnosis

HOSTS = ("gpu-a01", "gpu-a01", "gpu-a04", "gpu-a04")
FAULT = "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB."
Line = Callable[[int, str], str]


def first_node(
    diagnose: Callable[[str], Diagnosis],
    line: Line,
    hosts: tuple[str, ...] = HOSTS,
    fault: str = FAULT,
) -> str | None:
    """Return the host of the fault of rank 2 behind one line of each rank."""
    rows = [line(rank, host) for rank, host in enumerate(hosts)]
    first = diagnose("\n".join([*rows, "step 10 loss 2.1", fault]) + "\n").first_fault
    assert first is not None
    return first.node


@pytest.mark.parametrize(
    "line",
    [
        lambda r, h: f"rank {r} host {h}",
        lambda r, h: f"[init] GLOBAL_RANK={r} | {h} | cuda:{r % 2}",
        lambda r, h: f"2026-03-01 10:00:0{r},123 INFO trainer.py:41 - {h} -> process index: {r} ready",
        lambda r, h: f"INFO:root:proc {r} ({h}, local rank {r % 2}, pid 4{r}11) started",
        lambda r, h: f'rank_id="{r}", node="{h}", world 4',
        lambda r, h: f"# machine={h}; worker={r}",
        lambda r, h: f"dist_rank: {r} @ {h} up",
        lambda r, h: f"PROCID={r} running on {h}",
        lambda r, h: f"task {r} -> server {h} (pid={3100 + r})",
    ],
)  # fmt: skip
def test_the_host_of_a_rank_is_read_whatever_the_wording(
    diagnose: Callable[[str], Diagnosis], line: Line
) -> None:
    assert first_node(diagnose, line) == "gpu-a04"


@pytest.mark.parametrize(
    "line",
    [
        # Whom a rank waits for or reaches, what it reads, and what is not its own.
        lambda r, h: f"rank {r}: waiting for host {h}",
        lambda r, h: f"rank {r} connected to node {h}",
        lambda r, h: f"rank {r} lost host {h}",
        lambda r, h: f"rank {r}: reading shard on {h}",
        lambda r, h: f"rank {r} pairs with host {h}",
        lambda r, h: f"rank {r} pings node {h}",
        lambda r, h: f"rank {r} takes its cache of host {h}",
        # One address of all ranks is that of a service.
        lambda r, h: f"rank {r} uses server 10.0.0.5",
        lambda r, h: f"local_rank={r} host={h}",
        lambda r, h: f"tp_rank {r} host {h}",
        lambda r, h: f"step {r} host {h}",
        # An expert, a file and a device are no hosts, though they are counted.
        lambda r, h: f"rank {r} expert-{r}",
        lambda r, h: f"rank {r} mlx5_{r}",
        lambda r, h: f"rank {r} took part-0{r} of the corpus",
    ],
)  # fmt: skip
def test_lines_about_somebody_else_place_no_rank(
    diagnose: Callable[[str], Diagnosis], line: Line
) -> None:
    assert first_node(diagnose, line) is None


def test_counted_processes_are_ranks_only_where_they_are_as_many_as_the_job_has(
    diagnose: Callable[[str], Diagnosis],
) -> None:
    def line(number: int, host: str) -> str:
        return f"worker {number} on {host}"

    hosts = ("gpu-a01", "gpu-a02", "gpu-a03", "gpu-a04")
    assert first_node(diagnose, line, hosts) == "gpu-a03"
    more = FAULT.replace("rank2", "rank5")
    assert first_node(diagnose, line, hosts, more) is None
    assert first_node(diagnose, line, hosts, f"world_size=32\n{FAULT}") is None


def test_lines_that_put_a_rank_on_two_hosts_are_no_roster(
    diagnose: Callable[[str], Diagnosis],
) -> None:
    rows = "".join(f"rank {r} host gpu-a0{n}\n" for n in (1, 2) for r in range(4))
    first = diagnose(rows + FAULT + "\n").first_fault
    assert first is not None and first.node is None


def test_a_process_id_that_a_roster_tells_leads_to_the_rank(
    diagnose: Callable[[str], Diagnosis],
) -> None:
    rows = "".join(f"proc_index={r}; os pid {4100 + r}; node {h}\n" for r, h in enumerate(HOSTS))
    kernel = "Mar  1 10:00:00 gpu-a04 kernel: Out of memory: Killed process 4103 (python3) total-vm:1kB, anon-rss:1kB\n"
    first = diagnose(rows + kernel).first_fault
    assert first is not None
    assert (first.rank, first.node) == (3, "gpu-a04")
