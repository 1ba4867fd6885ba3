"""Fit a pool of measured durations: Normal, Gamma or log-normal by the smallest KS distance.

A pool that none of the three describes stays as it is (PRISM, arXiv 2510.15596v2, section 3).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rerail.domain.series import FloatArray
from rerail.errors import EvidenceError
from rerail.tools.forecast.durations import Duration, constant, empirical, gamma, lognormal, normal

LEAST_TO_FIT = 8
_CRITICAL = 1.358  # one-sample KS at 5 %, times 1/sqrt(n)


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted pool: the duration, the KS distance to its samples, and how many there were."""

    duration: Duration
    ks: float
    count: int


def fit_pool(samples: FloatArray, name: str = "pool") -> Fit:
    """Fit a pool of durations in seconds.

    Raises:
        EvidenceError: the pool is empty or holds a negative or non-finite time.
    """
    values = np.asarray(samples, dtype=np.float64).ravel()
    if len(values) == 0:
        raise EvidenceError(
            f"{name}: the pool is empty", subject=name, hint="give at least one duration"
        )
    if not np.isfinite(values).all() or (values < 0).any():
        wrong = values[~(np.isfinite(values) & (values >= 0))][0]
        raise EvidenceError(
            f"{name}: {wrong:g} s is not a duration",
            subject=name,
            hint="durations are seconds >= 0",
        )
    mean, sd = float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else 0.0
    if sd <= 1e-12 * max(mean, 1e-300):
        return Fit(constant(mean), 0.0, len(values))
    if len(values) < LEAST_TO_FIT:
        return Fit(empirical(values), 0.0, len(values))
    ordered = np.sort(values)
    best = min(_candidates(ordered, mean, sd), key=lambda item: item.ks)
    if best.ks > _CRITICAL / math.sqrt(len(values)):
        return Fit(empirical(values), 0.0, len(values))
    return best


def _candidates(ordered: FloatArray, mean: float, sd: float) -> list[Fit]:
    from scipy.special import gammainc, ndtr

    count = len(ordered)
    made = [Fit(normal(mean, sd), _ks(ndtr((ordered - mean) / sd)), count)]
    if ordered[0] > 0:
        logs = np.log(ordered)
        centre, sigma = float(logs.mean()), float(logs.std(ddof=1))
        shape = _gamma_shape(math.log(mean) - centre)
        if math.isfinite(shape):
            found = gamma(mean, mean / math.sqrt(shape))
            made.append(
                Fit(
                    found,
                    _ks(np.asarray(gammainc(shape, ordered * shape / mean), dtype=np.float64)),
                    count,
                )
            )
        if sigma < 3.0:
            middle = math.exp(centre + sigma**2 / 2)
            log_normal = lognormal(middle, middle * math.sqrt(math.expm1(sigma**2)))
            made.append(Fit(log_normal, _ks(ndtr((logs - centre) / sigma)), count))
    return made


def _gamma_shape(gap: float) -> float:
    """Return the maximum-likelihood shape of a Gamma, log(k) - digamma(k) = gap, by Newton steps.

    The same equation as `scipy.stats.gamma.fit(floc=0)` solves, without its search (Minka 2002).
    """
    from scipy.special import digamma, polygamma

    if gap <= 0:
        return math.inf
    shape = (3 - gap + math.sqrt((gap - 3) ** 2 + 24 * gap)) / (12 * gap)
    for _ in range(4):
        slope = 1 / shape - float(polygamma(1, shape))
        shape -= (math.log(shape) - float(digamma(shape)) - gap) / slope
    return shape


def _ks(at: FloatArray) -> float:
    """Return the KS distance of a fitted distribution function at the ordered samples."""
    count = len(at)
    upper = np.arange(1, count + 1) / count - at
    lower = at - np.arange(count) / count
    return float(max(upper.max(), lower.max()))


def ks_distance(one: FloatArray, other: FloatArray) -> float:
    """Return the two-sample KS distance of two sets of values."""
    a, b = np.sort(one), np.sort(other)
    both = np.concatenate([a, b])
    distance = np.searchsorted(a, both, side="right") / len(a)
    distance = distance - np.searchsorted(b, both, side="right") / len(b)
    return float(np.abs(distance).max())


def otsu_split(seconds: FloatArray) -> float:
    """Return the threshold that best parts transfers from waits, in seconds.

    Otsu's method on the logarithm: the cut with the largest variance between the two sides. A
    receive that waited for its peer holds a pipeline bubble; it must not be drawn as a transfer.
    The largest value is returned where the two sides are not clearly apart.
    """
    logs = np.sort(np.log(np.maximum(np.asarray(seconds, dtype=np.float64), 1e-9)))
    count = len(logs)
    if count < 4 or logs[-1] - logs[0] < math.log(2):
        return float(np.exp(logs[-1])) if count else 0.0
    below = np.arange(1, count)
    sums = np.cumsum(logs)
    low, high = sums[:-1] / below, (sums[-1] - sums[:-1]) / (count - below)
    between = below * (count - below) * (high - low) ** 2
    cut = int(np.argmax(between))
    within = logs.var() * count**2 - between[cut]
    # A smooth heavy tail also has a best cut; two populations explain most of the variance.
    if between[cut] < 4 * max(within, 1e-12) or high[cut] - low[cut] < math.log(2):
        return float(np.exp(logs[-1]))
    return float(np.exp((logs[cut] + logs[cut + 1]) / 2))
