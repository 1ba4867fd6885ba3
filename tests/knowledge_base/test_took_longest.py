"""Who needed the whole time of the others' wait for what took them seconds is whom they waited for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rerail.domain.diagnosis import Diagnosis

Run = Callable[[str], Diagnosis]


def log(seconds: dict[int, float], waited: tuple[int, ...] = (0, 3)) -> str:
    told = [
        f"[save.py:94] 03/11/2026 06:36:{35 + rank:02d} >> [Rank {rank}] Shard write took {value}s"
        for rank, value in seconds.items()
    ]
    call = "WorkNCCL(SeqNum=19007, OpType=GATHER, NumelIn=1, NumelOut=16, Timeout(ms)=600000)"
    told[-1:-1] = [
        f"[rank{rank}]:[E311 06:46:35.402019871 ProcessGroupNCCL.cpp:683] [Rank {rank}] Watchdog caught"
        f" collective operation timeout: {call} ran for 600012 milliseconds before timing out."
        for rank in waited
    ]
    return "\n".join([*told, ""])


def test_the_one_that_was_busy_for_the_whole_wait_is_named(diagnose: Run) -> None:
    found = diagnose(log({0: 2.9, 1: 3.1, 3: 2.8, 7: 4.0, 12: 746.31}))
    assert (found.failure_type, found.suspects.ranks) == ("nccl_slow_rank_timeout", [12])
    assert found.first_fault is not None
    assert "746.31" in found.first_fault.text


@pytest.mark.parametrize(
    ("seconds", "waited"),
    [
        ({0: 2.9, 1: 3.1, 3: 2.8, 7: 4.0, 12: 61.0}, (0, 3)),
        ({0: 2.9, 1: 101.0, 3: 2.8, 7: 4.0, 12: 746.31}, (0, 3)),
        ({0: 2.9, 12: 746.31}, (0, 3)),
        ({0: 2.9, 1: 3.1, 3: 2.8, 7: 4.0, 12: 746.31}, (0, 12)),
    ],
    ids=["not as long as the wait", "another one is slow too", "of two", "it waited itself"],
)
def test_nobody_is_named_else(
    seconds: dict[int, float], waited: tuple[int, ...], diagnose: Run
) -> None:
    assert diagnose(log(seconds, waited)).failure_type != "nccl_slow_rank_timeout"
