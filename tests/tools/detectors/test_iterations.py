"""Iterations from collective calls: exact where FALCON's autocorrelation is not (FALCON test E1)."""

from __future__ import annotations

import numpy as np
import pytest

from rerail.evals.detectors.call_sequences import FAMILIES, draw
from rerail.tools.detectors.iterations import find_iterations

GREYHOUND = [3, 2] * 4 + [6] + [3, 2] * 4


def autocorrelation(symbols: np.ndarray, lag: int) -> float:
    """The biased estimator of the paper, over op codes as if they were numbers."""
    centred = symbols - symbols.mean()
    return float((centred[:-lag] * centred[lag:]).sum() / (centred**2).sum())


@pytest.mark.parametrize(("sequence", "period"), [(GREYHOUND, 17), ([0, 6] * 64 + [5], 129)])
def test_periods_of_the_published_sequences(sequence: list[int], period: int) -> None:
    found = find_iterations(np.array(sequence * 20))
    assert found is not None
    assert found.period == period


@pytest.mark.parametrize(
    ("repeats", "value"),
    [(5, 0.8000), (10, 0.9000), (19, 0.9474), (20, 0.9500), (21, 0.9524), (40, 0.9750)],
)
def test_why_the_autocorrelation_needs_twenty_iterations(repeats: int, value: float) -> None:
    """The trap the anchor avoids: the biased estimator of an exact period is (L - p) / L."""
    assert autocorrelation(np.array(GREYHOUND * repeats, float), 17) == pytest.approx(
        value, abs=5e-5
    )


@pytest.mark.parametrize("family", ["clean", "log every 10", "eval every 50"])
def test_the_anchor_is_exact_on_random_jobs(family: str) -> None:
    rng = np.random.default_rng(11)
    for _ in range(10):
        job = draw(rng, FAMILIES[family], iterations=110)
        found = find_iterations(job.symbols, job.kinds)
        assert found is not None
        assert found.period == job.period
        assert len(found.starts) == job.iterations


def test_lost_records_shift_no_boundary() -> None:
    rng = np.random.default_rng(12)
    for _ in range(10):
        job = draw(rng, FAMILIES["0.1 % dropped"], iterations=110)
        found = find_iterations(job.symbols, job.kinds)
        assert found is not None
        assert abs(len(found.starts) - job.iterations) <= 2


def test_too_few_iterations_give_none() -> None:
    assert find_iterations(np.array([3, 2, 6])) is None
    assert find_iterations(np.arange(50)) is None


@pytest.mark.parametrize(
    ("stages", "tensor"),
    [(4, False), (2, False), (1, False), (2, True), (1, True), (4, True), (8, True), (8, False)],
)
def test_iteration_times_are_within_one_percent(stages: int, tensor: bool) -> None:
    """FALCON reports at most 1.2 % error over eight parallel settings (test E2)."""
    rng = np.random.default_rng(stages)
    job = draw(rng, FAMILIES["log every 10"], iterations=100, stages=stages, tensor=tensor)
    truth = rng.normal(1.0, 0.01, job.iterations)
    found = find_iterations(job.symbols, job.kinds)
    assert found is not None
    times = job.spread(np.cumsum(truth))
    error = abs(found.step_times_s(times).mean() / truth.mean() - 1)
    assert error <= 0.012
