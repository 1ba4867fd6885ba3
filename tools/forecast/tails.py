"""The distribution of the slowest of many replicas: empirical body, generalised-Pareto tail.

The maximum of 512 replicas lies where 20,000 samples hold 40 values; a tail fitted to the largest
5 % carries it further. Replicas that differ multiply their distribution functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rerail.domain.series import FloatArray
from rerail.tools.forecast.durations import SIZE, Duration, constant, tabulated

TAIL = 0.05
_PROBABILITY = (np.arange(SIZE) + 0.5) / SIZE
_LEAST_FOR_TAIL = 200
_BOOTSTRAP = 10_000


@dataclass(frozen=True, eq=False)
class Tailed:
    """Ordered samples and the tail above their 95th percentile: shape xi and scale in seconds."""

    ordered: FloatArray
    threshold: float
    xi: float
    scale: float

    def log_cdf(self, seconds: FloatArray) -> FloatArray:
        """Return the logarithm of the probability of at most these seconds."""
        count = len(self.ordered)
        at = (np.arange(count) + 0.5) / count
        body = np.interp(seconds, self.ordered, at, left=1e-300, right=at[-1])
        if self.scale <= 0:
            body = np.where(seconds >= self.ordered[-1], 1.0, body)
            return np.asarray(np.log(body))
        over = np.maximum(seconds - self.threshold, 0.0) / self.scale
        beyond = TAIL * self._survival(over)
        return np.asarray(np.where(seconds > self.threshold, np.log1p(-beyond), np.log(body)))

    def _survival(self, over: FloatArray) -> FloatArray:
        if abs(self.xi) < 1e-6:
            return np.asarray(np.exp(-over))
        inside = np.maximum(1.0 + self.xi * over, 0.0)
        with np.errstate(divide="ignore"):
            return np.asarray(np.where(inside > 0, inside ** (-1.0 / self.xi), 0.0))

    def beyond(self, probability: float) -> float:
        """Return the seconds that are exceeded with this probability (below 5 %)."""
        if self.scale <= 0:
            return float(self.ordered[-1])
        ratio = probability / TAIL
        if abs(self.xi) < 1e-6:
            return self.threshold - self.scale * float(np.log(ratio))
        return self.threshold + self.scale / self.xi * (float(ratio**-self.xi) - 1.0)


def with_tail(samples: FloatArray) -> Tailed:
    """Fit the tail by probability-weighted moments (Hosking and Wallis 1987)."""
    ordered = np.sort(samples)
    count = len(ordered)
    over = int(count * TAIL)
    if count < _LEAST_FOR_TAIL or ordered[-1] - ordered[0] <= 1e-12 * abs(ordered[-1]):
        return Tailed(ordered, float(ordered[-1]), 0.0, 0.0)
    threshold = float((ordered[-over - 1] + ordered[-over]) / 2)
    excess = ordered[-over:] - threshold
    mean = float(excess.mean())
    weight = (over - np.arange(over) - 0.5) / over
    second = float((weight * excess).mean())
    gap = mean - 2 * second
    if gap <= 0:
        return Tailed(ordered, threshold, 0.0, mean)
    xi = float(np.clip(2.0 - mean / gap, -0.5, 0.45))
    return Tailed(ordered, threshold, xi, mean * (1.0 - xi))


def slowest(classes: Sequence[tuple[FloatArray, float]]) -> Duration:
    """Return the time of the slowest replica; each class is (samples in seconds, how many replicas).

    Replicas of a class are alike and independent: F(t) = prod_c F_c(t)^n_c, at a cost that does not
    depend on their number.
    """
    fitted = [(with_tail(samples), count) for samples, count in classes]
    low = max(float(one.ordered[0]) for one, _ in fitted)
    high = max(one.beyond(1e-3 * TAIL / max(count, 1.0)) for one, count in fitted)
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
