"""Labelled step-time series: FALCON-like job sets, hard families, healthy series.

The generators were written for this evaluation and share no code with the detectors. Truth is
every change of the level by 10 % or more, up or down.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.random import Generator

from rerail.domain.series import FloatArray

GATE = math.log(1.10)


@dataclass(frozen=True, slots=True)
class TrueChange:
    """A change of level: row, last row of its ramp, +1 slower or -1 faster, and log size.

    On a ramp `at` is where it crosses 10 % and `since` where it begins.
    """

    at: int
    until: int
    sign: int
    size: float
    since: int


@dataclass(frozen=True, slots=True)
class Labelled:
    """One series [n] of seconds with its true changes and whether the job is fail-slow."""

    name: str
    values: FloatArray
    changes: tuple[TrueChange, ...] = ()
    fail_slow: bool = False
    steps: FloatArray | None = None


@dataclass(frozen=True, slots=True)
class Noise:
    """What healthy steps look like: jitter, correlation, spikes, pauses, drift, warm-up."""

    jitter: tuple[float, float] = (0.005, 0.02)
    correlation: float = 0.0
    spikes: float = 0.0
    double_spikes: float = 0.15
    pauses: bool = False
    drift: float = 0.0
    warm_up: bool = False
    length_jitter: tuple[float, float] | None = None
    pool: tuple[FloatArray, ...] = field(default=())


def draw_noise(rng: Generator, n: int, noise: Noise) -> FloatArray:
    """Return log noise [n] of healthy steps; real residuals in blocks when a pool is given."""
    if noise.pool:
        return _bootstrap(rng, n, noise.pool)
    sigma = rng.uniform(*(noise.length_jitter or noise.jitter))
    white = rng.normal(0.0, sigma, n)
    phi = rng.uniform(0, noise.correlation) if noise.correlation else 0.0
    if phi:
        scale = math.sqrt(1 - phi * phi)
        for row in range(1, n):
            white[row] = phi * white[row - 1] + scale * white[row]
    if noise.drift:
        period = rng.uniform(0.5, 2.0) * n
        phase = rng.uniform(0, 2 * math.pi)
        white += noise.drift * np.sin(2 * math.pi * np.arange(n) / period + phase)
    return white


def _bootstrap(rng: Generator, n: int, pool: tuple[FloatArray, ...]) -> FloatArray:
    source = pool[int(rng.integers(len(pool)))]
    blocks = []
    have = 0
    while have < n:
        length = int(rng.integers(50, 400))
        begin = int(rng.integers(0, max(1, len(source) - length)))
        blocks.append(source[begin : begin + length])
        have += len(blocks[-1])
    return np.concatenate(blocks)[:n]


def add_nuisance(rng: Generator, logs: FloatArray, noise: Noise) -> None:
    """Add what is slow for one or two steps only: spikes, checkpoints, garbage collection."""
    n = len(logs)
    if noise.spikes:
        rows = np.flatnonzero(rng.random(n) < noise.spikes)
        size = np.log1p(0.1 + rng.pareto(1.5, len(rows)).clip(0, 20))
        logs[rows] += size
        for row in rows[rng.random(len(rows)) < noise.double_spikes]:
            logs[min(n - 1, row + 1)] += rng.uniform(0.1, 1.0)
    if noise.pauses:
        every = int(rng.integers(50, 1000))
        rows = np.arange(int(rng.integers(every)), n, every)
        logs[rows] += rng.uniform(math.log(1.2), math.log(6.0))
        if rng.random() < 0.5:
            logs[np.minimum(n - 1, rows + 1)] += rng.uniform(0.1, 0.8)
        every = int(rng.integers(20, 400))
        rows = np.arange(int(rng.integers(every)), n, every)
        logs[rows] += rng.uniform(0.03, 0.2)
    if noise.warm_up:
        length = int(rng.integers(3, 60))
        logs[:length] += rng.uniform(0.2, 2.0) * np.exp(-np.arange(length) / (length / 4))


REAL = Noise((0.005, 0.03), 0.6, 0.004, pauses=True, drift=0.015, warm_up=True)
SPIKY = Noise((0.005, 0.03), 0.6, 0.02, pauses=True, drift=0.015, warm_up=True)
CLEAN = Noise()
VARLEN = Noise((0.005, 0.03), 0.3, 0.004, pauses=True, warm_up=True, length_jitter=(0.04, 0.08))


def episodes(
    rng: Generator,
    n: int,
    *,
    size: tuple[float, float] = (0.10, 5.0),
    length: tuple[int, int] = (20, 5000),
    count: tuple[int, int] = (1, 4),
    ramp: tuple[int, int] | None = None,
    nested: bool = False,
) -> tuple[FloatArray, tuple[TrueChange, ...]]:
    """Return log level [n] with slow episodes, and its true changes; sizes are log-uniform."""
    level = np.zeros(n)
    changes: list[TrueChange] = []
    at = int(rng.integers(300, 1500))
    for _ in range(int(rng.integers(count[0], count[1] + 1))):
        rows = int(math.exp(rng.uniform(math.log(length[0]), math.log(length[1]))))
        if at + rows + 300 > n:
            break
        height = math.log1p(math.exp(rng.uniform(math.log(size[0]), math.log(size[1]))))
        height = max(height, GATE + 1e-9)
        rise = int(rng.integers(*ramp)) if ramp else 0
        rise = min(rise, rows // 2)
        if nested and rows > 200:
            _nested(rng, level, changes, at, rows, height)
        else:
            _one(level, changes, at, rows, height, rise)
        at += rows + int(rng.integers(300, 3000))
    return level, tuple(changes)


def _one(
    level: FloatArray, changes: list[TrueChange], at: int, rows: int, height: float, rise: int
) -> None:
    level[at : at + rows] = height
    crossing = 0
    if rise:
        slope = height * np.arange(1, rise + 1) / (rise + 1)
        level[at : at + rise] = slope
        crossing = int(np.searchsorted(slope, GATE))
    changes.append(TrueChange(at + min(crossing, rise), at + rise, +1, height, at))
    changes.append(TrueChange(at + rows, at + rows, -1, height, at + rows))


def _nested(
    rng: Generator, level: FloatArray, changes: list[TrueChange], at: int, rows: int, height: float
) -> None:
    """Two or three episodes on top of each other, each step of the stairs at least 60 rows."""
    depth = int(rng.integers(2, 4))
    edge = max(60, rows // (2 * depth + 2))
    for layer in range(depth):
        first, last = at + layer * edge, at + rows - layer * edge
        if last - first < 60:
            break
        level[first:last] += height
        changes.append(TrueChange(first, first, +1, height, first))
        changes.append(TrueChange(last, last, -1, height, last))
        height = max(GATE + 1e-9, height * rng.uniform(0.5, 1.0))
    changes.sort(key=lambda change: change.at)


Maker = Callable[[Generator, int], Labelled]


def _family(name: str, noise: Noise, **shape: object) -> Maker:
    def make(rng: Generator, n: int) -> Labelled:
        level, changes = episodes(rng, n, **shape)  # type: ignore[arg-type]
        logs = draw_noise(rng, n, noise)
        slow = level > 0
        logs[slow] *= rng.uniform(1.0, 1.5)
        logs += level
        add_nuisance(rng, logs, noise)
        seconds = rng.uniform(0.3, 20.0) * np.exp(logs)
        return Labelled(name, seconds, changes, bool(changes))

    return make


def _healthy(name: str, noise: Noise) -> Maker:
    def make(rng: Generator, n: int) -> Labelled:
        logs = draw_noise(rng, n, noise)
        add_nuisance(rng, logs, noise)
        return Labelled(name, rng.uniform(0.3, 20.0) * np.exp(logs))

    return make


def _adversarial(rng: Generator, n: int) -> Labelled:
    """Periodic blocks of two to four slow steps, strong correlation, many spikes, two modes."""
    base = _family("adv", Noise((0.005, 0.02), 0.9, 0.03, pauses=True, warm_up=True))(rng, n)
    logs = np.log(base.values)
    every = int(rng.integers(60, 400))
    width = int(rng.integers(2, 5))
    size = rng.uniform(0.2, 0.8)
    for begin in range(int(rng.integers(every)), n, every):
        logs[begin : begin + width] += size
    logs += np.where(rng.random(n) < 0.3, rng.uniform(0.01, 0.04), 0.0)
    return Labelled("adv", np.exp(logs), base.changes, base.fail_slow)


FAMILIES: dict[str, Maker] = {
    "clean": _family("clean", CLEAN),
    "real": _family("real", REAL),
    "small": _family("small", REAL, size=(0.10, 0.25)),
    "short": _family("short", REAL, length=(20, 60), count=(3, 8)),
    "varlen": _family("varlen", VARLEN, size=(0.15, 5.0), length=(100, 5000)),
    "ramp": _family("ramp", REAL, ramp=(5, 200), length=(400, 5000), size=(0.15, 5.0)),
    "overlap": _family("overlap", REAL, nested=True, length=(600, 5000)),
    "adv": _adversarial,
}

HEALTHY: dict[str, Maker] = {
    "h_clean": _healthy("h_clean", CLEAN),
    "h_real": _healthy("h_real", REAL),
    "h_spiky": _healthy("h_spiky", SPIKY),
    "h_varlen": _healthy("h_varlen", VARLEN),
}


def with_pool(pool: tuple[FloatArray, ...]) -> dict[str, Maker]:
    """Return families whose noise is drawn from residuals of real logs [n] (log units)."""
    noise = Noise(pool=pool, warm_up=True)
    return {
        "log_noise": _family("log_noise", noise, size=(0.15, 5.0), length=(30, 2000)),
        "h_log_noise": _healthy("h_log_noise", noise),
    }


def falcon_set(kind: str, seed: int, n: int = 10_000) -> list[Labelled]:
    """Return a FALCON-like job set: `compute` has 386 healthy + 6 slow jobs, `comm` 64 + 43.

    Step time 0.42-0.54 s or 1.8 s, spikes of 10-60 % about every 100 steps, one benign shift of
    3-8 % in 30 % of the healthy jobs (papers-failslow.md A8, E3).
    """
    healthy, slow, base = (386, 6, (0.42, 0.54)) if kind == "compute" else (64, 43, (1.8, 1.8))
    rng = np.random.default_rng(seed)
    jobs = []
    for number in range(healthy + slow):
        sick = number >= healthy
        logs = rng.normal(0, rng.uniform(0.005, 0.02), n)
        logs += np.where(rng.random(n) < 0.01, np.log1p(rng.uniform(0.1, 0.6, n)), 0.0)
        changes: tuple[TrueChange, ...] = ()
        if sick:
            level, changes = episodes(
                rng,
                n,
                size=(0.15, 1.5),
                length=(200, n // 3),
                count=(1, 3 if kind == "comm" else 1),
            )
            logs += level
        elif rng.random() < 0.3:
            logs[int(rng.integers(n // 10, n)) :] += math.log1p(rng.uniform(0.03, 0.08))
        seconds = rng.uniform(*base) * np.exp(logs)
        jobs.append(Labelled(f"{kind}-{number}", seconds, changes, sick))
    return jobs
