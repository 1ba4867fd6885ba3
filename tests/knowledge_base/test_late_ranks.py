"""One rank that prints the message of each step long after all others is the slow one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rerail.domain.diagnosis import Diagnosis, Outcome

Run = Callable[[str | dict[str, str]], Diagnosis]


def job(
    late: Callable[[int], int | None],
    front: str = "[rank{rank}] ",
    date: str = "",
    ends: str = "end batch {step}",
) -> str:
    lines = []
    for step in range(400, 404):
        begins, slow = 60 * (step - 400), late(step)
        for rank in (0, 2, 1, 3):
            for at, text in (
                (begins + (40 if rank == slow else 0), "begin batch {step}"),
                (begins + 50, ends),
            ):
                clock = f"{date}05:{11 + at // 60:02d}:{at % 60:02d}.1{rank}4"
                said = text.format(step=step, rank=rank)
                lines.append((at, rank, f"{clock} {front.format(rank=rank)}{said}"))
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
        pytest.param(lambda step: 0, id="the first rank, which logs and evaluates"),
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


def test_a_clock_that_is_ahead_makes_all_lines_late(diagnose: Run) -> None:
    assert diagnose(job(lambda step: 3, ends="rank {rank} has loss 2.{step}")).suspects.ranks == []


def bars(*paces: float, done: int = 412) -> str:
    return "".join(
        f"rank{rank}: {100 if pace < 3 else 41:3d}%|####| {1000 if pace < 3 else done}/1000 [41:10<00:00,  {pace}s/it]\n"
        for rank, pace in enumerate(paces)
    )


def test_who_is_far_behind_in_its_own_share_of_the_work_is_slow(diagnose: Run) -> None:
    found = diagnose(bars(2.47, 2.48, 2.46, 5.9))
    assert (found.failure_type, found.suspects.ranks) == ("fail_slow_unexplained", [3])


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(bars(2.47, 2.48, 2.46, 2.47), id="even"),
        pytest.param(bars(2.47, 5.9, 2.46, 5.9), id="two"),
        pytest.param(bars(2.47, 2.48, 2.46, 5.9, done=990), id="nearly as far"),
        pytest.param(bars(2.47, 5.9), id="two ranks"),
    ],
)
def test_who_keeps_up_or_is_not_alone_is_nobody(diagnose: Run, text: str) -> None:
    assert diagnose(text).suspects.ranks == []
