"""A random duration as a table of equally likely values: sums, maxima and draws of it.

A table is exact in its quantiles, so that a maximum of n copies costs one look-up at u^(1/n)
(order statistics) and a sum of different durations one addition of shuffled tables (a Latin
hypercube: every summand keeps its exact distribution).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from rerail.domain.series import FloatArray

SIZE = 1 << 16  # sixteen random bits choose an entry
_CELLS = 1 << 13
_TOGETHER = 64
_MANY = 4 * _TOGETHER
_PROBABILITY = (np.arange(SIZE) + 0.5) / SIZE


@lru_cache(maxsize=1)
def _scores() -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the normal scores of the table, 1,025 scores over the same range, and their u."""
    from scipy.special import ndtr, ndtri

    scores = ndtri(_PROBABILITY)
    coarse = np.linspace(scores[0], scores[-1], 1025)
    return scores, coarse, ndtr(coarse)


@dataclass(frozen=True, eq=False)
class Duration:
    """A duration in seconds: `table` [65536] rising, `mean` and `sd` in seconds.

    `quantile` maps probabilities to seconds and reaches further into the tail than the table.
    """

    kind: str
    mean: float
    sd: float
    quantile: Callable[[FloatArray], FloatArray] = field(repr=False)

    @property
    def table(self) -> FloatArray:
        """Return the values at the probabilities (i + 0.5) / 65536."""
        cached: FloatArray | None = self.__dict__.get("_table")
        if cached is None:
            if self.kind == "gamma":
                # Its quantiles are dear and smooth in the normal score: 1,025 of them suffice.
                scores, coarse, at = _scores()
                cached = np.interp(scores, coarse, self.quantile(at))
            else:
                cached = np.asarray(self.quantile(_PROBABILITY), dtype=np.float64)
            self.__dict__["_table"] = cached
        return cached

    def scaled(self, factor: float) -> Duration:
        """Return the same duration, `factor` times longer."""
        if factor == 1.0:
            return self
        return Duration(
            self.kind, self.mean * factor, self.sd * factor, lambda q: self.quantile(q) * factor
        )

    def widened(self, factor: float) -> Duration:
        """Return the same mean with deviations `factor` times as large, none below zero."""
        if factor == 1.0 or self.sd == 0.0:
            return self
        if factor == 0.0:
            return constant(self.mean)
        return Duration(
            self.kind,
            self.mean,
            self.sd * factor,
            lambda q: np.maximum(self.mean + (self.quantile(q) - self.mean) * factor, 0.0),
        )

    def cdf(self, seconds: FloatArray) -> FloatArray:
        """Return the probability of at most these seconds, by interpolation in the table."""
        return np.interp(seconds, self.table, _PROBABILITY, left=0.0, right=1.0)


def constant(seconds: float) -> Duration:
    """Return a duration that never varies."""
    return Duration("constant", seconds, 0.0, lambda q: np.full(np.shape(q), seconds))


def normal(mean: float, sd: float) -> Duration:
    """Return a Normal duration; the part below zero counts as zero."""
    if sd == 0.0:
        return constant(mean)
    from scipy.special import ndtri

    return Duration("normal", mean, sd, lambda q: np.maximum(mean + sd * ndtri(q), 0.0))


def gamma(mean: float, sd: float) -> Duration:
    """Return a Gamma duration of this mean and standard deviation."""
    if sd == 0.0:
        return constant(mean)
    from scipy.special import gammaincinv

    shape = (mean / sd) ** 2
    return Duration(
        "gamma",
        mean,
        sd,
        lambda q: np.asarray(gammaincinv(shape, q) * (mean / shape), dtype=np.float64),
    )


def lognormal(mean: float, sd: float) -> Duration:
    """Return a log-normal duration of this mean and standard deviation."""
    if sd == 0.0:
        return constant(mean)
    from scipy.special import ndtri

    sigma = math.sqrt(math.log1p((sd / mean) ** 2))
    centre = math.log(mean) - sigma**2 / 2
    return Duration("lognormal", mean, sd, lambda q: np.exp(centre + sigma * ndtri(q)))


def empirical(samples: FloatArray) -> Duration:
    """Return the distribution of the samples themselves, with linear quantiles between them."""
    ordered = np.sort(np.asarray(samples, dtype=np.float64))
    count = len(ordered)
    at = (np.arange(count) + 0.5) / count
    return Duration(
        "empirical",
        float(ordered.mean()),
        float(ordered.std()),
        lambda q: np.interp(q, at, ordered),
    )


def tabulated(values: FloatArray, kind: str = "composed") -> Duration:
    """Return a duration from 65536 equally likely values in any order."""
    table = np.sort(values)
    made = Duration(
        kind, float(table.mean()), float(table.std()), lambda q: np.interp(q, _PROBABILITY, table)
    )
    made.__dict__["_table"] = table
    return made


def maximum(one: Duration, count: int) -> Duration:
    """Return the longest of `count` independent copies: its quantile at u is that of u^(1/count)."""
    if count <= 1 or one.sd == 0.0:
        return one
    power = 1.0 / count
    table = np.asarray(one.quantile(_PROBABILITY**power))
    made = Duration(
        one.kind,
        float(table.mean()),
        float(table.std()),
        lambda q: one.quantile(np.asarray(q) ** power),
    )
    made.__dict__["_table"] = table
    return made


def total(parts: Sequence[tuple[Duration, int]], seed: int = 0) -> Duration:
    """Return the sum of independent durations, each as often as its number says.

    Mean and variance are the exact sums; the shape is that of 65536 stratified draws.
    """
    kept = [(one, count) for one, count in parts if count > 0]
    fixed = float(sum(one.mean * count for one, count in kept if one.sd == 0.0))
    random = [(one, count) for one, count in kept if one.sd > 0.0]
    if not random:
        return constant(fixed)
    if len(random) == 1 and random[0][1] == 1:
        one = random[0][0]
        return one if fixed == 0.0 else _moved(one, fixed)
    rng = np.random.default_rng(seed)
    values = np.full(SIZE, fixed)
    for one, count in random:
        _add(values, one, count, rng)
    mean = fixed + sum(one.mean * count for one, count in random)
    sd = math.sqrt(sum(one.sd**2 * count for one, count in random))
    spread = float(values.std())
    return tabulated(mean + (values - values.mean()) * (sd / spread if spread else 1.0))


def _add(values: FloatArray, one: Duration, count: int, rng: np.random.Generator) -> None:
    """Add so many shuffled copies of the table; of very many, sums of 64 copies are shuffled."""
    for _ in range(count % _TOGETHER if count >= _MANY else count):
        values += rng.permutation(one.table)
    if count >= _MANY:
        _add(values, total([(one, _TOGETHER)], int(rng.integers(1 << 31))), count // _TOGETHER, rng)


def _moved(one: Duration, by: float) -> Duration:
    return Duration(one.kind, one.mean + by, one.sd, lambda q: one.quantile(q) + by)


def longer_of(one: Duration, other: Duration, seed: int = 0) -> Duration:
    """Return the maximum of two independent, different durations."""
    if one.sd == 0.0 and other.sd == 0.0:
        return one if one.mean >= other.mean else other
    rng = np.random.default_rng(seed)
    return tabulated(np.maximum(one.table, rng.permutation(other.table)))


def max_moments(
    one: Duration, factors: FloatArray, points: int = 128
) -> tuple[FloatArray, FloatArray]:
    """Return mean and sd of max_i f_i X_i for independent copies X_i, by numerical integration.

    `factors` [groups, ranks] are how much slower each rank is; results [groups] in seconds. The
    distribution function of the maximum is the product of F(t / f_i).
    """
    from scipy.integrate import trapezoid

    groups = len(factors)
    table = one.table
    if one.sd == 0.0:
        return one.mean * factors.max(axis=1), np.zeros(groups)
    low = table[0] * factors.max(axis=1)
    high = float(one.quantile(np.array([1 - 1e-7]))[0]) * factors.max(axis=1)
    grid = low[:, None] + (high - low)[:, None] * np.linspace(0.0, 1.0, points)
    # F on a fine even grid: its value at any time is one indexed read instead of a search.
    bottom = float(table[0])
    step = (float(one.quantile(np.array([1 - 1e-7]))[0]) - bottom) / (_CELLS - 1)
    even = one.cdf(np.asarray(bottom + step * np.arange(_CELLS), dtype=np.float64))
    product = np.ones((groups, points))
    for rank in range(factors.shape[1]):
        cell = (grid / (factors[:, rank, None] * step) + (0.5 - bottom / step)).astype(np.intp)
        product *= even.take(cell, mode="clip")
    beyond = 1.0 - product
    mean = low + trapezoid(beyond, grid, axis=1)
    square = low**2 + 2 * trapezoid(grid * beyond, grid, axis=1)
    spread: NDArray[np.float64] = np.sqrt(np.maximum(square - mean**2, 0.0))
    return mean, spread


def max_located(
    parts: Sequence[tuple[Duration, FloatArray, FloatArray]], points: int = 128
) -> tuple[FloatArray, FloatArray]:
    """Return mean and sd of max_i (m_i + s_i Z_i) for independent Z_i, by numerical integration.

    Each part is a shape of mean 0 and sd 1 with its m and s [groups] in seconds.
    """
    from scipy.integrate import trapezoid

    top = np.array([1 - 1e-6])
    low = np.max([mean + sd * one.table[0] for one, mean, sd in parts], axis=0)
    high = np.max([mean + sd * float(one.quantile(top)[0]) for one, mean, sd in parts], axis=0)
    high = np.maximum(high, low)
    grid = low[:, None] + (high - low)[:, None] * np.linspace(0.0, 1.0, points)
    product = np.ones(grid.shape)
    for one, mean, sd in parts:
        z = (grid - mean[:, None]) / np.maximum(sd, 1e-300)[:, None]
        still = (sd == 0.0)[:, None]
        product *= np.where(still, grid >= mean[:, None], one.cdf(np.clip(z, -1e6, 1e6)))
    beyond = 1.0 - product
    mean = low + trapezoid(beyond, grid, axis=1)
    # About `low`, so that a small spread of a long time keeps its digits.
    square = 2 * trapezoid((grid - low[:, None]) * beyond, grid, axis=1)
    return mean, np.sqrt(np.maximum(square - (mean - low) ** 2, 0.0))
