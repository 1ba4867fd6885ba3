"""Congested steps are found where communication stays slow, and not in noise that does not last."""

import numpy as np
import pytest

from rerail.tools.forecast.congestion import congestion
from rerail.tools.forecast.from_trace import spec_from_spans
from rerail.tools.forecast.step import StepModel

STEPS = 1200


def noise(rng, share=0.0, scale=1.0, lasting=20, steps=STEPS):
    """Two collectives' seconds [2, steps] and which steps were made slow."""
    slow = np.zeros(steps, dtype=bool)
    for begin in range(0, steps, int(lasting / share) if share else steps + 1):
        slow[begin : begin + lasting] = share > 0
    return rng.lognormal(-6, 0.4, (2, steps)) * np.where(slow, scale, 1.0), slow


def test_steps_that_were_slow_on_end_are_found_with_share_scale_and_length():
    took, slow = noise(np.random.default_rng(1), share=0.25, scale=2.0)
    found = congestion(took)
    assert (found.steps == slow).mean() > 0.93
    assert found.regime.share == pytest.approx(0.25, abs=0.04)
    assert found.regime.scale == pytest.approx(2.0, rel=0.1)
    assert found.regime.steps == pytest.approx(20, rel=0.25)


@pytest.mark.parametrize("seed", range(20))
def test_noise_that_does_not_last_is_one_regime(seed):
    rng = np.random.default_rng(seed)
    heavy = rng.lognormal(-6, 1.0, (2, STEPS)) * np.where(rng.random(STEPS) < 0.2, 4.0, 1.0)
    assert congestion(heavy) is None
    assert congestion(np.full((2, STEPS), 0.01)) is None
    assert congestion(noise(rng, 0.25, 2.0, steps=60)[0]) is None


def test_a_forecast_from_spans_keeps_the_tail_of_congested_steps():
    rng = np.random.default_rng(2)
    took = np.vstack([noise(rng, share=0.2, scale=3.0)[0] for _ in range(4)])
    times, spans = [], {0: [], 1: []}
    for step in range(STEPS):
        at, mine = 0.0, []
        for length in took[:, step]:
            mine.append(("world", at + 1e-4, at + 1e-4 + length))
            at = mine[-1][2]
        times.append(at)
        for steps in spans.values():
            steps.append((0.0, at, mine))
    expected = np.percentile(times, 95)
    spec = spec_from_spans(spans)
    assert StepModel(spec).forecast(4000).percentile(95) == pytest.approx(expected, rel=0.05)
    calm = spec.model_copy(update={"effects": spec.effects.model_copy(update={"regime": None})})
    assert StepModel(calm).forecast(4000).percentile(95) < 0.8 * expected
