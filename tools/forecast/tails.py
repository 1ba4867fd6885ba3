"""The distribution of the slowest of many replicas: empirical body, fitted tail.

The maximum of 512 replicas lies where 20,000 samples hold 40 values, so that a fitted tail carries it
further: a generalised-Pareto one of the largest 5 %, or fewer where two populations meet there. A step
that sums many ops has a tail of nearly Normal shape, which converges slowly to Pareto's but is nearly
straight in the normal score: there a parabola in the score through the largest 20 % uses four times the
values, or fewer where the counts of large samples contradict it. Replicas that differ multiply their
distribution functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rerail.domain.series import FloatArray
from rerail.tools.forecast.durations import SIZE, Duration, constant, tabulated

_PROBABILITY = (np.arange(SIZE) + 0.5) / SIZE
_LEAST_FOR_TAIL = 200
_BOOTSTRAP = 10_000
_PARABOLA_SHARES = (0.2, 0.1, 0.05)
_PARETO_SHARES = (0.05, 0.02, 0.01)
_MOST_PARETO_DEVIATION = 5.0  # a fit by moments leaves a few standard deviations itself
_LIGHTEST, _HEAVIEST = -0.3, 0.15  # shapes between which a parabola is tried; Normal: about -0.1
_LEVELS = (0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)
_LEAST_COUNTED = 20
_MOST_DEVIATION = 2.0  # standard deviations of a count of large samples
_HIGHEST_SCORE = 8.0
_POINTS = 2048


@dataclass(frozen=True, eq=False)
class Tailed:
    """Ordered samples, and the curve that stands for them above its first point.

    `seconds` rise and `log_survival` falls along the curve; both are empty where no tail was fitted.
    """

    ordered: FloatArray
    seconds: FloatArray
    log_survival: FloatArray

    def log_cdf(self, seconds: FloatArray) -> FloatArray:
        """Return the logarithm of the probability of at most these seconds."""
        count = len(self.ordered)
        at = (np.arange(count) + 0.5) / count
        body = np.interp(seconds, self.ordered, at, left=1e-300, right=at[-1])
        if not len(self.seconds):
            return np.asarray(np.log(np.where(seconds >= self.ordered[-1], 1.0, body)))
        survival = np.exp(np.interp(seconds, self.seconds, self.log_survival, right=-np.inf))
        inside = seconds > self.seconds[0]
        return np.asarray(np.where(inside, np.log1p(-np.where(inside, survival, 0)), np.log(body)))

    def beyond(self, probability: float) -> float:
        """Return the seconds that are exceeded with this probability, one within the tail."""
        if not len(self.seconds):
            return float(self.ordered[-1])
        return float(np.interp(-np.log(probability), -self.log_survival, self.seconds))


def with_tail(samples: FloatArray) -> Tailed:
    """Fit the tail: a parabola in the normal score where the samples allow it, else Pareto."""
    ordered = np.sort(samples)
    nothing = np.zeros(0)
    if len(ordered) < _LEAST_FOR_TAIL or ordered[-1] - ordered[0] <= 1e-12 * abs(ordered[-1]):
        return Tailed(ordered, nothing, nothing)
    shape, pareto = _pareto(ordered, _PARETO_SHARES[0])
    if _LIGHTEST < shape < _HEAVIEST:
        for share in _PARABOLA_SHARES:
            curve = _parabola(ordered, share)
            if curve is not None:
                return Tailed(ordered, *curve)
    for share in _PARETO_SHARES:
        if share != _PARETO_SHARES[0]:
            _, pareto = _pareto(ordered, share)
        if len(ordered) * share < _LEAST_COUNTED:
            break
        if not _contradicted(ordered, share, *pareto):
            return Tailed(ordered, *pareto)
    return Tailed(ordered, nothing, nothing)


def _parabola(ordered: FloatArray, share: float) -> tuple[FloatArray, FloatArray] | None:
    """Return seconds and log survival of the tail; None where the samples contradict it.

    Order statistics are weighted by their variance u (1 - u) / (n phi(z)^2).
    """
    from scipy.special import log_ndtr, ndtri

    count = len(ordered)
    over = int(count * share)
    u = (np.arange(count - over, count) + 0.5) / count
    z = ndtri(u)
    weight = np.exp(-(z**2) / 2) / np.sqrt(u * (1.0 - u))
    fitted = np.polynomial.Polynomial.fit(z, ordered[-over:], 2, w=weight)
    scores = np.linspace(ndtri(1.0 - share), _HIGHEST_SCORE, _POINTS)
    seconds = fitted(scores)
    if (np.diff(seconds) <= 0).any():
        return None
    for level in _LEVELS:
        expected = count * level
        if level >= share or expected < _LEAST_COUNTED:
            continue
        found = count - np.searchsorted(ordered, fitted(ndtri(1.0 - level)), side="right")
        if abs(found - expected) > _MOST_DEVIATION * np.sqrt(expected):
            return None
    return seconds, np.asarray(log_ndtr(-scores))


def _contradicted(
    ordered: FloatArray, share: float, seconds: FloatArray, log_survival: FloatArray
) -> bool:
    """Return whether far more or fewer large samples lie beyond the curve than it says (two populations)."""
    for level in _LEVELS:
        expected = len(ordered) * level
        if level >= share or expected < _LEAST_COUNTED:
            continue
        at = np.interp(-np.log(level), -log_survival, seconds)
        found = len(ordered) - np.searchsorted(ordered, at, side="right")
        if abs(found - expected) > _MOST_PARETO_DEVIATION * np.sqrt(expected):
            return True
    return False


def _pareto(ordered: FloatArray, share: float) -> tuple[float, tuple[FloatArray, FloatArray]]:
    """Return the shape, and seconds and log survival, of the largest share by probability-weighted moments.

    Hosking and Wallis 1987.
    """
    from scipy.special import log_ndtr, ndtri

    count = len(ordered)
    over = int(count * share)
    threshold = float((ordered[-over - 1] + ordered[-over]) / 2)
    excess = ordered[-over:] - threshold
    mean = float(excess.mean())
    weight = (over - np.arange(over) - 0.5) / over
    gap = mean - 2 * float((weight * excess).mean())
    xi = float(np.clip(2.0 - mean / gap, -1.0, 0.45)) if gap > 0 else 0.0
    scores = np.linspace(ndtri(1.0 - share), _HIGHEST_SCORE, _POINTS)
    log_survival = np.asarray(log_ndtr(-scores), dtype=np.float64)
    beyond = np.log(share) - log_survival
    grown = beyond if abs(xi) < 1e-6 else np.expm1(xi * beyond) / xi
    return xi, (threshold + mean * (1.0 - xi) * grown, log_survival)


def slowest(classes: Sequence[tuple[FloatArray, float]]) -> Duration:
    """Return the time of the slowest replica; each class is (samples in seconds, how many replicas).

    Replicas of a class are alike and independent: F(t) = prod_c F_c(t)^n_c, at a cost that does not
    depend on their number. One replica alone is as it was drawn.
    """
    alone = sum(count for _, count in classes) <= 1
    nothing = np.zeros(0)
    fitted = [
        (Tailed(np.sort(samples), nothing, nothing) if alone else with_tail(samples), count)
        for samples, count in classes
    ]
    low = max(float(one.ordered[0]) for one, _ in fitted)
    high = max(one.beyond(5e-5 / max(count, 1.0)) for one, count in fitted)
    if high <= low:
        return constant(low)
    if len(fitted) == 1:
        grid = _fine_grid(fitted[0][0], low, high)
    else:
        grid = np.linspace(low, high, 8192)
    log_f = np.zeros(len(grid))
    for one, count in fitted:
        log_f += count * one.log_cdf(grid)
    total = np.maximum.accumulate(np.exp(log_f))
    return tabulated(np.interp(_PROBABILITY, total, grid), "slowest")


def _fine_grid(one: Tailed, low: float, high: float) -> FloatArray:
    ordered = one.ordered[one.ordered >= low]
    ordered = ordered[:: max(1, len(ordered) // 20_000)]
    return np.unique(np.concatenate([ordered, np.linspace(low, high, 8192)]))


def standard_error(
    classes: Sequence[tuple[FloatArray, float]], quantile: float, seed: int = 0, draws: int = 24
) -> float:
    """Return the Monte Carlo standard error of a quantile of the slowest replica, by bootstrap.

    Of many samples 10,000 are drawn anew and the error is scaled by the square root of the ratio.
    """
    rng = np.random.default_rng(seed)
    most = max(len(samples) for samples, _ in classes)
    share = min(1.0, _BOOTSTRAP / most)
    found = []
    for _ in range(draws):
        drawn = [
            (samples[rng.integers(0, len(samples), max(2, int(share * len(samples))))], count)
            for samples, count in classes
        ]
        found.append(float(slowest(drawn).quantile(np.array([quantile]))[0]))
    return float(np.std(found, ddof=1) * np.sqrt(share))
