import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rerail.tools.detectors.events import EventKind, Stage
from rerail.tools.detectors.slow_steps import SlowStepDetector, StepPoint
from rerail.tools.detectors.slow_steps_many import SlowStepBank

BLOOM = [105.18, 105.15, 105.16, 105.17, 106.25, 110.17, 111.14, 111.2, 111.09, 111.17]


def healthy(n: int, seed: int = 0, sigma: float = 0.01) -> np.ndarray:
    return 2.0 * np.exp(np.random.default_rng(seed).normal(0, sigma, n))


def run(values: np.ndarray) -> SlowStepDetector:
    detector = SlowStepDetector()
    detector.run(np.arange(len(values)), np.asarray(values, dtype=float))
    return detector


def kinds(detector: SlowStepDetector) -> list[EventKind]:
    return [event.kind for event in detector.events]


def test_onset_and_relief_of_a_long_phase_at_their_steps():
    values = healthy(3000)
    values[1000:1500] *= 1.3
    onset, relief = run(values).events
    assert (onset.kind, relief.kind) == (EventKind.SLOW_ONSET, EventKind.SLOW_RELIEF)
    assert (onset.step, relief.step) == (1000, 1500)
    assert onset.detected_at_step <= 1006
    assert onset.change == pytest.approx(0.3, abs=0.02)
    assert relief.after == pytest.approx(2.0, rel=0.02)
    assert onset.stage is Stage.CONFIRMED


def test_ten_lines_with_tiny_noise_show_a_rise_of_6_percent():
    (onset,) = run(np.array(BLOOM)).events
    assert onset.step == 4
    assert onset.change == pytest.approx(0.0565, abs=0.003)


def test_creep_in_two_small_jumps_alarms():  # E4
    values = healthy(3000, sigma=0.005)
    values[1000:2000] *= 1.08
    values[2000:] *= 1.166
    events = run(values).events
    assert [event.kind for event in events] == [EventKind.SLOW_ONSET]
    assert events[0].change == pytest.approx(0.166, abs=0.03)


def test_slow_creep_without_any_jump_alarms():
    values = healthy(40_000) * np.linspace(1.0, 1.25, 40_000)
    assert EventKind.CREEP in kinds(run(values))


@pytest.mark.parametrize("share", [1.02, 1.05])
def test_small_benign_shift_does_not_alarm(share):  # E4
    values = healthy(3000)
    values[1500:] *= share
    assert kinds(run(values)) == []


def test_short_severe_episode_is_not_deleted():  # E4
    values = healthy(1200)
    values[600:630] *= 1.8
    onset, relief = run(values).events
    assert (onset.step, relief.step) == (600, 630)
    assert onset.stage is Stage.CONFIRMED


def test_single_and_double_pauses_do_not_alarm():
    values = healthy(5000)
    values[::100] *= 4
    values[1::500] *= 3
    assert kinds(run(values)) == []


def test_phase_of_seven_steps_is_brief():
    values = healthy(2000)
    values[1000:1007] *= 1.6
    assert {event.stage for event in run(values).events} == {Stage.BRIEF}


def test_warm_up_is_no_fault():
    values = healthy(1000)
    values[:30] *= 1 + 4 * np.exp(-np.arange(30) / 8)
    assert kinds(run(values)) == []


def test_overlapping_episodes_are_told_apart():
    values = healthy(4000)
    values[1000:3000] *= 1.3
    values[1500:2500] *= 1.4
    events = run(values).events
    assert [event.step for event in events] == [1000, 1500, 2500, 3000]


def test_ramp_is_one_event():
    values = healthy(3000)
    values[1000:1100] *= np.linspace(1, 2, 100)
    values[1100:] *= 2
    onsets = [e for e in run(values).events if e.kind is EventKind.SLOW_ONSET]
    assert len(onsets) == 1
    assert onsets[0].change == pytest.approx(1.0, abs=0.2)


def test_restart_on_slow_nodes_is_an_onset():
    detector = SlowStepDetector()
    detector.run(np.arange(500), healthy(500))
    detector.restart()
    detector.run(np.arange(400, 700), healthy(300, seed=1) * 1.3)
    assert [event.kind for event in detector.events] == [EventKind.SLOW_ONSET]
    assert detector.events[0].step == 400


def test_restart_at_the_same_speed_is_quiet():
    detector = SlowStepDetector()
    detector.run(np.arange(500), healthy(500))
    detector.restart()
    detector.run(np.arange(400, 700), healthy(300, seed=1))
    assert detector.events == ()


@pytest.mark.slow
def test_no_alarm_in_a_million_healthy_steps():
    rng = np.random.default_rng(3)
    values = healthy(1_000_000, seed=3, sigma=0.02)
    values[rng.random(len(values)) < 0.005] *= 3
    assert kinds(run(values)) == []


def series_strategy(draw):
    n = draw(st.integers(60, 600))
    seed = draw(st.integers(0, 10_000))
    rng = np.random.default_rng(seed)
    values = np.exp(rng.normal(0, draw(st.sampled_from([0.001, 0.01, 0.05])), n))
    at = draw(st.integers(5, n - 1))
    values[at : at + draw(st.integers(1, 200))] *= draw(st.floats(0.5, 4))
    values[rng.random(n) < draw(st.sampled_from([0, 0.02, 0.2]))] *= 2.5
    return values


series = st.composite(series_strategy)()


@settings(max_examples=40, deadline=None)
@given(series)
def test_streaming_equals_batch_equals_bank(values):
    steps = np.arange(len(values))
    batch = run(values)
    stream = SlowStepDetector()
    raised = [
        event
        for s, v in zip(steps, values, strict=True)
        for event in stream.update(StepPoint(int(s), float(v)))
    ]
    assert stream.events == batch.events
    bank = SlowStepBank(2)
    seen = []
    for step, value in zip(steps, values, strict=True):
        seen += [e for n, e in bank.update(int(step), np.array([value, np.nan])) if n == 0]
    bank.finish()
    assert bank.detectors[0].events == batch.events
    assert seen == raised


@settings(max_examples=30, deadline=None)
@given(series, st.integers(-8, 8))
def test_scale_invariance(values, power):
    plain, scaled = run(values), run(values * 10.0**power)
    assert [(e.kind, e.index, e.stage) for e in plain.events] == [
        (e.kind, e.index, e.stage) for e in scaled.events
    ]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(allow_nan=True, allow_infinity=True, width=64), max_size=150))
def test_any_input_is_taken(values):
    with np.errstate(all="ignore"):
        run(np.array(values))
