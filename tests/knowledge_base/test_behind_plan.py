"""Steps that rise, or lag behind what their own lines plan, do not deny what else says that something is slow."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rerail.domain.diagnosis import Diagnosis, Outcome

Run = Callable[[str | dict[str, str]], Diagnosis]

TABLE = """gn-2# nvidia-smi --query-gpu=index,clocks.sm,clocks_event_reasons.sw_thermal_slowdown --format=csv
index, clocks.current.sm [MHz], clocks_event_reasons.sw_thermal_slowdown
0, 1980 MHz, Not Active
1, 1455 MHz, Active
2, 1980 MHz, Not Active
3, 1980 MHz, Not Active
"""


def steps(times: list[float], more: str = "") -> str:
    return "".join(
        f"[2026-02-03 04:{at:02d}:00] iter {48200 + 100 * at} | step {time:.3f}s{more} | loss 2.{300 - at}\n"
        for at, time in enumerate(times)
    )


def test_a_throttled_gpu_beside_steps_that_rise(diagnose: Run) -> None:
    found = diagnose(steps([1.021, 1.038, 1.09, 1.184, 1.266, 1.264]) + TABLE)
    assert found.failure_type == "slow_gpu"


def test_a_throttled_gpu_beside_even_steps(diagnose: Run) -> None:
    found = diagnose(steps([1.021, 1.018, 1.02, 1.022, 1.019, 1.021]) + TABLE)
    assert found.outcome is Outcome.NO_FAILURE


@pytest.mark.parametrize(
    ("line", "slow"),
    [
        ("iter {} | loss 2.71 | step time 1.92 s | expected 0.71 s", True),
        ("iter {} | loss 2.71 | step time 0.72 s | expected 0.71 s", False),
        ("it {} loss 2.71 tokens/s 61204 (target 88000)", True),
        ("it {} loss 2.71 tokens/s 88204 (target 88000)", False),
    ],
)
def test_steps_beside_their_plan(diagnose: Run, line: str, slow: bool) -> None:
    found = diagnose("".join(line.format(1200 + 10 * at) + "\n" for at in range(4)))
    assert (found.outcome is Outcome.FAILURE) == slow
    assert (found.failure_type == "fail_slow_unexplained") == slow


def test_the_time_of_a_step_is_not_its_number(diagnose: Run) -> None:
    progress = diagnose(steps([1.0] * 8)).progress
    assert progress is not None
    assert progress["last_step"] == 48900
