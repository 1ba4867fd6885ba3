"""Noise alone makes no slow phase; a change that all steps bear out does."""

from __future__ import annotations

import numpy as np
import pytest

from rerail.domain.series import StepSeries
from rerail.tools.detectors.detect import detect
from rerail.tools.detectors.events import SeriesOutcome


def _outcome(seconds: np.ndarray) -> SeriesOutcome:
    return detect(StepSeries("run", np.arange(1, len(seconds) + 1), seconds)).outcome


@pytest.mark.parametrize("spread", [0.08, 0.15, 0.25])
def test_step_times_that_only_vary_are_healthy(spread: float) -> None:
    alarms = 0
    for seed in range(12):
        noise = np.random.default_rng(seed).normal(0.0, spread, 1200)
        alarms += _outcome(0.95 * np.exp(noise)) is SeriesOutcome.FAIL_SLOW
    assert alarms <= 1


@pytest.mark.parametrize("spread", [0.02, 0.08, 0.15])
@pytest.mark.parametrize("onset", [40, 400, 1000])
def test_steps_that_became_half_as_fast_are_found_in_any_noise(spread: float, onset: int) -> None:
    noise = np.random.default_rng(onset).normal(0.0, spread, 1200)
    level = np.where(np.arange(1200) < onset, 0.95, 1.9)
    assert _outcome(level * np.exp(noise)) is SeriesOutcome.FAIL_SLOW


def test_a_tenth_more_is_found_in_little_noise() -> None:
    noise = np.random.default_rng(1).normal(0.0, 0.02, 800)
    level = np.where(np.arange(800) < 300, 1.0, 1.12)
    assert _outcome(level * np.exp(noise)) is SeriesOutcome.FAIL_SLOW
