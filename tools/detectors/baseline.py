"""The healthy level of a series: what a step takes, how much it scatters, when to alarm.

All levels are natural logarithms of seconds, so that a change of 10 % is the same everywhere.
One state describes one series; it knows nothing of events.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from rerail.domain.series import FloatArray

CHUNK = 64  # rows between two updates of level and noise
BOOT = 40  # rows before the level is first believed
FULL_DELTA = math.log(1.10)  # the change that must be found at ordinary noise
LEAST_DELTA = math.log(1.05)  # the change that must be found where noise is tiny
NOISE_PER_DELTA = 25.0  # smaller changes count only when they are this many sigmas
GATE = 0.9  # share of delta that a measured change must reach to be an event
LEAST_NOISE, MOST_NOISE = 0.0005, 0.15
LOG_ALARM = 16.0  # ln(1 / false alarm rate per step), detectors.md 1.5
MOST_THRESHOLD = 40.0
CLIP = 1.5  # units of change that one row counts at most
ALLOWANCE = 0.5  # units of change by which the sums fall with each row
QUANTUM = 1024.0  # scores are multiples of 1/1024, so sums are exact in any order
LIKE_SIGMA = 1.4826  # median absolute deviations of normal noise in one standard deviation


@dataclass(slots=True)
class Level:
    """Level, scatter and alarm threshold of one series (detectors.md 1.5, reworked in chunks).

    `m` current level, `s` relative noise, `best` lowest level ever held, `p` share of outliers,
    `phi` correlation of neighbours, `longest` longest run of outliers that was no change,
    `n` rows on this level. `delta`, `h` and `limit` follow from these by `refresh`.
    """

    m: float = 0.0
    s: float = 0.01
    best: float = math.inf
    p: float = 0.003
    phi: float = 0.1
    longest: int = 1
    longest_age: int = 0
    n: int = 0
    noise_n: int = 0
    delta: float = FULL_DELTA
    h: float = 3.0
    limit: float = 0.08
    open: list[float] = field(default_factory=list)
    base: float = 0.0
    base_s: float = 0.01
    return_limit: float = -math.inf

    def refresh(self) -> None:
        """Recompute unit of change, alarm threshold and outlier limit from level and noise."""
        noise = self.base_s if self.open else self.s
        self.delta = min(FULL_DELTA, max(LEAST_DELTA, NOISE_PER_DELTA * noise))
        ratio = self.s / self.delta
        by_noise = LOG_ALARM * ratio * ratio * (1 + self.phi) / (1 - self.phi)
        by_outliers = max(3.0, LOG_ALARM / -math.log(self.p), self.longest + 3.0)
        self.h = min(MOST_THRESHOLD, max(by_noise, by_outliers))
        self.limit = max(0.8 * self.delta, 4 * self.s)
        if self.open:
            tolerance = max(3 * self.base_s, self.gate / 2)
            self.return_limit = min(self.base + tolerance, self.m - 3 * self.s)
        else:
            self.return_limit = -math.inf

    @property
    def gate(self) -> float:
        """The least measured change (log) that is an event."""
        return GATE * self.delta

    def standard_error(self, n: int) -> float:
        """Return the standard error (log) of a median of n rows at this noise."""
        return 1.25 * self.s * math.sqrt((1 + self.phi) / (1 - self.phi) / n)

    def settle(self, m: float, n: int) -> None:
        """Move to a new level known from n rows."""
        self.m, self.n = m, n
        self.refresh()

    def learn(self, chunk: FloatArray) -> None:
        """Follow one quiet chunk [CHUNK] of log step times: level, noise, outliers, correlation."""
        median = middle(chunk)
        spread = LIKE_SIGMA * middle(np.abs(chunk - median))
        error = chunk - self.m
        self.follow(median, spread, error, int(np.count_nonzero(np.abs(error) > self.limit)))

    def follow(self, median: float, spread: float, error: FloatArray, far: int) -> None:
        """Follow one quiet chunk known by its median, scatter, errors [CHUNK] and outliers."""
        residual = np.maximum(error, -3 * self.s)
        np.minimum(residual, 3 * self.s, out=residual)
        outliers = far / CHUNK
        square = float(np.dot(residual, residual))
        lag = float(np.dot(residual[1:], residual[:-1])) / square if square > 0 else 0.0
        s = self.s
        gain = CHUNK / (min(self.n, 300) + CHUNK)
        self.m += gain * min(s, max(-s, median - self.m))
        gain = CHUNK / (min(self.noise_n, 448) + CHUNK)
        s += gain * (min(2 * s, max(0.5 * s, spread)) - s)
        self.s = min(MOST_NOISE, max(LEAST_NOISE, s))
        lag = 0.0 if lag < 0 else min(lag, 0.9)
        self.phi += 0.2 * (lag - self.phi)
        p = self.p + 0.06 * (outliers - self.p)
        self.p = 1e-4 if p < 1e-4 else min(p, 0.5)
        self.n += CHUNK
        self.noise_n += CHUNK
        self.longest_age += CHUNK
        if self.longest_age > 4000:
            self.longest, self.longest_age = max(1, self.longest - 1), 0
        if not self.open and self.n >= 2 * CHUNK:
            self.best = min(self.best, self.m)
        self.refresh()


def middle(values: FloatArray) -> float:
    """Return the median of a short array [n], several times faster than numpy.median."""
    n = len(values)
    half = n // 2
    ordered = values.copy()
    ordered.sort()  # of so few values a sort costs less than choosing where to partition
    if n % 2:
        return float(ordered[half])
    return float((ordered[half - 1] + ordered[half]) / 2)


def middle_of_rows(values: FloatArray) -> FloatArray:
    """Return the medians [n] of rows [n, m], each the same as `middle` of the row."""
    half = values.shape[1] // 2
    ordered = np.sort(values, axis=1)
    if values.shape[1] % 2:
        return np.asarray(ordered[:, half])
    return np.asarray((ordered[:, half - 1] + ordered[:, half]) / 2)


def first_level(values: FloatArray) -> tuple[float, float]:
    """Return level and noise (log) of the first rows [n >= 4] of a series.

    Where the first quarter of the values lies far below the median the run is still warming up,
    and the lower quartile is the better guess of what it will settle at.
    """
    median = middle(values)
    quartile = float(np.quantile(values, 0.25))
    level = quartile if median - quartile > 0.05 else median
    noise = LIKE_SIGMA * middle(np.abs(values - level))
    return level, min(MOST_NOISE, max(LEAST_NOISE, noise))


@dataclass(frozen=True, slots=True)
class Split:
    """Where a short stretch changes its level: row of the first new value, and both levels."""

    at: int
    before: float
    after: float
    noise: float


def best_split(values: FloatArray, least: int) -> Split | None:
    """Split a short stretch [n <= 128] in two levels with the least sum of absolute errors.

    Both sides have at least `least` rows. Returns None when the stretch is too short.
    """
    n = len(values)
    if n < 2 * least:
        return None
    best: tuple[float, int, float, float] | None = None
    for at in range(least, n - least + 1):
        low, high = middle(values[:at]), middle(values[at:])
        cost = float(np.abs(values[:at] - low).sum() + np.abs(values[at:] - high).sum())
        if best is None or cost < best[0] - 1e-12:
            best = (cost, at, low, high)
    assert best is not None
    _, at, before, after = best
    residual = np.abs(np.concatenate([values[:at] - before, values[at:] - after]))
    noise = LIKE_SIGMA * middle(residual) * n / (n - 2)
    return Split(at, before, after, max(LEAST_NOISE, noise))


def early_onset(values: FloatArray) -> Split | None:
    """Find a clear rise in the first rows [8 <= n < BOOT], where no level is known yet.

    The rise must reach the gate at the noise of both sides, be eight standard errors wide and
    leave at most one row of each side on the wrong side of the midpoint.
    """
    split = best_split(values, 4)
    if split is None:
        return None
    change = split.after - split.before
    delta = min(FULL_DELTA, max(LEAST_DELTA, NOISE_PER_DELTA * split.noise))
    fewest = min(split.at, len(values) - split.at)
    if change < GATE * delta or change < 8 * split.noise / math.sqrt(fewest):
        return None
    half = (split.before + split.after) / 2
    low, high = values[: split.at] > half, values[split.at :] < half
    if low.sum() > 1 or high.sum() > 1:
        return None
    return _first_departure(values, split)


def _first_departure(values: FloatArray, split: Split) -> Split:
    """Move a split back over rows that had already left the old level, three at most."""
    at = split.at
    before = values[: at - 3] if at > 6 else values[: max(3, at - 1)]
    noise = max(LEAST_NOISE, LIKE_SIGMA * middle(np.abs(before - split.before)))
    while split.at - at < 3 and at > 3 and values[at - 1] - split.before > 8 * noise:
        at -= 1
    return Split(at, split.before, split.after, split.noise)
