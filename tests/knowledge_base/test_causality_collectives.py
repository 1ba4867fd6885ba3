"""Time-outs accuse the rank that printed none, is behind, or called something else."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from rerail.domain.diagnosis import Diagnosis, Status

Run = Callable[[str | dict[str, str]], Diagnosis]

HELLO = "".join(
    f"hx-{r // 8:02d}:{4400 + r}:{4500 + r} [{r % 8}] NCCL INFO ncclCommInitRankConfig comm 0x1 rank {r} nranks 16 "
    f"cudaDev {r % 8} nvmlDev {r % 8} busId {0x19 + r % 8:x}000 commId 0x3f8a - Init COMPLETE\n"
    for r in range(16)
)


def timeout(
    rank: int, *, op: str = "ALLREDUCE", seq: int = 812, size: int = 4096, late: float = 0.0
) -> str:
    return (
        f"[rank{rank}]:[E301 02:40:{7 + late:09.6f} ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective "
        f"operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={size}, NumelOut={size}, Timeout(ms)=600000) "
        f"ran for 600{rank:03d} milliseconds before timing out.\n"
    )


def status(rank: int, enqueued: int, completed: int = 811) -> str:
    return (
        f"[rank{rank}]:[E301 02:40:07.900000 ProcessGroupNCCL.cpp:1895] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] "
        f"Exception (either an error or timeout) detected by watchdog at work: 812, last enqueued NCCL work: {enqueued}, "
        f"last completed NCCL work: {completed}.\n"
    )


def shuffled(lines: list[str], seed: int) -> str:
    random.Random(seed).shuffle(lines)
    return "".join(lines)


@pytest.mark.parametrize("culprits", [[11], [0], [15], [3, 4]])
@pytest.mark.parametrize("seed", [1, 2])
def test_the_absent_ranks_of_sixteen(diagnose: Run, culprits: list[int], seed: int) -> None:
    lines = [timeout(r, late=r / 7) for r in range(16) if r not in culprits]
    found = diagnose(HELLO + shuffled(lines, seed))
    assert found.suspects.ranks == culprits
    assert found.status is Status.SUPPORTED
    assert found.failure_type == "nccl_timeout_unexplained"
    assert any("py-spy" in m.how_to_get for m in found.missing)


def test_a_time_out_on_all_ranks_alike_accuses_nobody(diagnose: Run) -> None:
    found = diagnose(HELLO + shuffled([timeout(r) for r in range(16)], 3))
    assert found.suspects.ranks == []
    assert found.suspects.nodes == []
    assert found.status is Status.HYPOTHESIS


def test_half_of_the_ranks_missing_accuses_nobody(diagnose: Run) -> None:
    found = diagnose(HELLO + shuffled([timeout(r) for r in range(8)], 4))
    assert len(found.suspects.ranks) in (0, 8)
    assert found.status is not Status.ESTABLISHED


@pytest.mark.parametrize("culprit", [0, 6, 15])
def test_the_rank_that_is_behind_by_its_status_line(diagnose: Run, culprit: int) -> None:
    lines = [timeout(r) + status(r, 811 if r == culprit else 815) for r in range(16)]
    found = diagnose(HELLO + shuffled(lines, 5))
    assert found.suspects.ranks == [culprit]


@pytest.mark.parametrize(
    "odd", [{"op": "ALLGATHER"}, {"size": 2048}, {"op": "BROADCAST", "size": 1}]
)
def test_the_rank_that_called_something_else(diagnose: Run, odd: dict[str, object]) -> None:
    lines = [timeout(r, **(odd if r == 9 else {})) for r in range(16)]  # type: ignore[arg-type]
    found = diagnose(HELLO + shuffled(lines, 6))
    assert (found.failure_type, found.suspects.ranks) == ("rank_divergence", [9])
    assert found.first_fault is not None
    assert found.first_fault.rank == 9


def test_the_time_outs_that_a_crash_brings_are_consequences(diagnose: Run) -> None:
    crash = (
        "2026-03-01 02:29:00 [rank7]: Traceback (most recent call last):\n"
        '2026-03-01 02:29:00 [rank7]:   File "/job/train.py", line 88, in <module>\n'
        "2026-03-01 02:29:00 [rank7]: IndexError: list index out of range\n"
    )
    lines = [timeout(r) for r in range(16) if r != 7]
    for text in (HELLO + crash + "".join(lines), HELLO + "".join(lines) + crash):
        found = diagnose(text)
        assert (found.failure_type, found.suspects.ranks) == ("python_exception", [7])
        assert sum(c.count for c in found.consequences) >= 15
        assert {r for c in found.consequences for r in c.ranks} == set(range(16)) - {7}


def test_a_monitored_barrier_names_the_rank(diagnose: Run) -> None:
    found = diagnose(
        "[rank0]: Traceback (most recent call last):\n"
        "[rank0]: RuntimeError: Rank 0 failed to pass monitoredBarrier in 30000 ms\n".replace(
            "Rank 0", "Ranks 5"
        )
        + "[rank0]:  Original exception:\n"
    )
    assert found.suspects.ranks == [5]


def test_a_killed_process_is_why_the_others_waited(diagnose: Run) -> None:
    found = diagnose(
        HELLO
        + "".join(timeout(r) for r in range(16) if r != 4)
        + "srun: error: hx-00: task 4: Killed\n"
        + "srun: error: hx-01: tasks 8-15: Aborted (core dumped)\n"
    )
    assert (found.failure_type, found.suspects.ranks) == ("process_killed_unexplained", [4])
