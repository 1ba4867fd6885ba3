"""Labelled loss curves: healthy, with spikes of known size, and with slow divergences.

Healthy curves fall by a power law with noise, learning-rate drops and restarts. Truth is the
row and size of each spike, and the row where a divergence begins.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from rerail.domain.series import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class LossCurve:
    """A loss curve [n] with its steps, spikes as (row, relative size, rows) and divergence row."""

    steps: IntArray
    values: FloatArray
    spikes: tuple[tuple[int, float, int], ...] = ()
    diverges_at: int | None = None
    restarts: tuple[int, ...] = ()


def healthy_curve(rng: Generator, n: int) -> LossCurve:
    """Return a curve that falls with noise, sometimes drops with the learning rate, and restarts.

    A restart goes back some hundred steps and repeats them with other noise.
    """
    steps = np.arange(n)
    restarts: list[int] = []
    if rng.random() < 0.5:
        at, back = int(rng.integers(n // 4, n - 10)), int(rng.integers(20, 500))
        steps = np.concatenate([steps[:at], np.arange(at - back, n - back)])
        restarts.append(at)
    start, floor = rng.uniform(8, 12), rng.uniform(1.2, 2.8)
    decay = (1 + steps / rng.uniform(20, 200)) ** -rng.uniform(0.3, 0.6)
    logs = np.log(floor + (start - floor) * decay)
    for _ in range(int(rng.integers(0, 3))):
        logs[steps > rng.integers(n // 5, n)] -= rng.uniform(0.01, 0.06)
    sigma = rng.uniform(0.003, 0.02)
    noise = rng.normal(0, sigma, n)
    if rng.random() < 0.3:
        noise += np.where(rng.random(n) < 0.002, rng.uniform(0.02, 0.08, n), 0.0)
    return LossCurve(steps, np.exp(logs + noise), restarts=tuple(restarts))


def spiky_curve(rng: Generator, n: int, count: int) -> LossCurve:
    """Return a healthy curve with `count` spikes of +8 % to +300 % that decay in 5 to 80 rows."""
    curve = healthy_curve(rng, n)
    values = curve.values.copy()
    gap = (n - 1000) // count
    spikes = []
    for number in range(count):
        at = 500 + number * gap + int(rng.integers(0, gap // 3))
        size = math.exp(rng.uniform(math.log(0.08), math.log(3.0)))
        tau = rng.uniform(5, 80)
        rows = np.arange(min(gap // 2, int(5 * tau)))
        values[at : at + len(rows)] *= 1 + size * np.exp(-rows / tau)
        spikes.append((at, size, len(rows)))
    return LossCurve(curve.steps, values, tuple(spikes), restarts=curve.restarts)


def diverging_curve(rng: Generator, n: int) -> LossCurve:
    """Return a healthy curve that departs exponentially at a random row, from +1 %, tau 20-150."""
    curve = healthy_curve(rng, n)
    at = int(rng.integers(n // 3, 2 * n // 3))
    rise = 0.01 * np.expm1(np.arange(n - at) / rng.uniform(20, 150))
    values = curve.values.copy()
    values[at:] *= 1 + np.minimum(rise, 4.0)
    return LossCurve(curve.steps, values, diverges_at=at, restarts=curve.restarts)
