"""One rank that prints the message of each step long after all others is the slow one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rerail.domain.diagnosis import Diagnosis, Outcome

Run = Callable[[str | dict[str, str]], Diagnosis]


def job(late: Callable[[int], int | None], front: str = "[rank{rank}] ", date: str = "") -> str:
    lines, second = [], 0
    for step in range(400, 404):
        slow = late(step)
        for rank in (0, 2, 1, 3):
            at = second + (40 if rank == slow else 0)
            text = f"{date}05:{11 + at // 60:02d}:{at % 60:02d}.1{rank}4 {front.format(rank=rank)}begin batch {step}"
            lines.append((at, rank, text))
        second += 60
    return "\n".join(text for _, _, text in sorted(lines)) + "\n"


@pytest.mark.parametrize("front", ["[rank{rank}] ", "[GPU{rank}] "])
@pytest.mark.parametrize("date", ["", "2026-03-01 "])
def test_who_is_late_step_after_step_is_slow(diagnose: Run, front: str, date: str) -> None:
    found = diagnose(job(lambda step: 3, front, date))
    assert (found.failure_type, found.suspects.ranks) == ("fail_slow_unexplained", [3])


@pytest.mark.parametrize(
    "late",
    [
        pytest.param(lambda step: None, id="nobody"),
        pytest.param(lambda step: step % 4, id="another each time"),
        pytest.param(lambda step: 3 if step == 402 else None, id="once"),
    ],
)
def test_who_is_late_now_and_then_is_not(diagnose: Run, late: Callable[[int], int | None]) -> None:
    found = diagnose(job(late))
    assert found.suspects.ranks == []
    assert found.outcome is not Outcome.FAILURE


def test_a_local_rank_of_several_hosts_is_nobody(diagnose: Run) -> None:
    both = "".join(
        f"gn-{host}: {line}\n"
        for host in (1, 2)
        for line in job(lambda step: 3, "[GPU{rank}] ").splitlines()
    )
    assert diagnose(both).suspects.ranks == []
