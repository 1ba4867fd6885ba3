"""A rank that is steps behind and gives up waiting as all others do, in an earlier collective than they."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest

from rerail.domain.diagnosis import Diagnosis

Run = Callable[[str], Diagnosis]

STEPS, BEHIND = 30, 8


def hung(ranks: int, late: Collection[int], *, seq: int = 3 * BEHIND, end: str = "") -> str:
    """Steps of all ranks, of some of them fewer, then time-outs of all of them or an `end` of the job."""
    told = [
        f"[rank{rank}]: 2026-03-01 02:00:{step:02d} step {step}/900 loss 3.{step:02d} lr 3e-4\n"
        for step in range(1, STEPS + 1)
        for rank in range(ranks)
        if rank not in late or step <= BEHIND
    ]
    if end:
        return "".join([*told, end])
    return "".join([*told, *(timeout(r, seq if r in late else 3 * STEPS) for r in range(ranks))])


def timeout(rank: int, seq: int) -> str:
    return (
        f"[rank{rank}]:[E301 02:11:07.500000000 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective "
        f"operation timeout: WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn=4096, NumelOut=4096, Timeout(ms)=600000) "
        f"ran for {600_000 + rank % 90} milliseconds before timing out.\n"
    )


@pytest.mark.parametrize("ranks", [16, 700])
def test_who_is_behind_in_steps_and_in_its_collective_is_waited_for(
    ranks: int, diagnose: Run
) -> None:
    found = diagnose(hung(ranks, {11}))
    assert found.failure_type == "nccl_timeout_unexplained"
    assert found.suspects.ranks == [11]
    assert f"its last round is {BEHIND}, that of all others {STEPS}" in found.summary


def test_who_waits_in_the_collective_of_all_others_is_not_behind(diagnose: Run) -> None:
    """Its steps lie in a buffer."""
    assert diagnose(hung(16, {11}, seq=3 * STEPS)).suspects.ranks == []


def test_nobody_is_behind_where_groups_are_evenly_split(diagnose: Run) -> None:
    assert diagnose(hung(16, range(0, 16, 2))).suspects.ranks == []


@pytest.mark.parametrize("ranks", [16, 700])
def test_who_is_steps_behind_when_the_job_is_ended_stopped_first(ranks: int, diagnose: Run) -> None:
    end = "slurmstepd: error: *** STEP 44.0 ON n1 CANCELLED AT 2026-03-01T02:32:00 DUE TO TIME LIMIT ***\n"
    found = diagnose(hung(ranks, {11}, end=end))
    assert (found.failure_type, found.suspects.ranks) == ("job_time_limit", [11])
