"""When a window is opened: rules on iterations, and iterations found in calls."""

from __future__ import annotations

import numpy as np
import pytest

from rerail.tools.profiling.trigger import IterationFinder, SlowTrigger


def alarm_after(trigger: SlowTrigger, times: list[float]) -> int | None:
    return next((i for i, took in enumerate(times, 1) if trigger.iteration(took)), None)


def warm() -> SlowTrigger:
    trigger = SlowTrigger()
    assert alarm_after(trigger, [1.0] * 100) is None
    return trigger


def test_six_percent_more_alarms_at_the_42nd_iteration() -> None:
    assert alarm_after(warm(), [1.06] * 60) == 42


def test_four_percent_more_never_alarms() -> None:
    assert alarm_after(warm(), [1.04] * 500) is None


@pytest.mark.parametrize("jitter", [0.015, 0.025, 0.05])
def test_plain_jitter_does_not_alarm(jitter: float) -> None:
    random = np.random.default_rng(3)
    times = (1 + jitter * random.standard_normal(50_000)).tolist()
    assert alarm_after(SlowTrigger(), times) is None


def test_the_shortest_iteration_as_reference_would_alarm() -> None:
    """The trap: the same noise against the shortest of the last 50."""
    times = 1 + 0.025 * np.random.default_rng(3).standard_normal(5_000)
    windows = np.lib.stride_tricks.sliding_window_view(times, 50)
    assert (windows.mean(axis=1) > 1.05 * windows.min(axis=1)).mean() > 0.3


def test_a_checkpoint_now_and_then_does_not_alarm() -> None:
    times = [30.0 if i % 40 == 39 else 1.0 for i in range(2_000)]
    assert alarm_after(SlowTrigger(), times) is None


def test_nothing_for_five_iterations_is_a_stall() -> None:
    trigger = warm()
    assert not trigger.stalled(4.99)
    assert trigger.stalled(5.0)
    assert not SlowTrigger().stalled(1e9)


def begins(finder: IterationFinder, calls: str) -> list[int]:
    return [i for i, kind in enumerate(calls) if finder.call(kind)]


@pytest.mark.parametrize("part", ["ns", "nnnns", "nss", "nsnns"])
def test_an_iteration_is_what_repeats(part: str) -> None:
    found = begins(IterationFinder(), part * 60)
    steps = np.diff(found[1:])
    assert len(found) > 20
    assert set(steps.tolist()) == {len(part)}


def test_a_changed_sequence_is_learned_anew_after_200_calls() -> None:
    finder = IterationFinder()
    begins(finder, "ns" * 50)
    assert finder.pattern == ("ns",)
    begins(finder, "nns" * 40)
    assert finder.pattern == ("ns",)
    begins(finder, "nns" * 200)
    assert finder.pattern == ("nns",)
