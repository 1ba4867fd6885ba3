"""Bayesian online change detection with verification: the detector of FALCON, as a baseline.

The alarm is the run-length posterior P(r <= 3) > 0.9. P(r = 0) equals the hazard in the textbook
recursion whatever the data (papers-failslow.md A3), so it cannot be the test.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rerail.domain.series import FloatArray

FIRST_ROWS = 30  # rows that set the prior
SHORT_RUN = 3
POSTERIOR = 0.9


class Change(NamedTuple):
    """One change: row where it began, row where it was said, levels before and after."""

    at: int
    said_at: int
    before: float
    after: float


class Bocd:
    """Run-length posterior of many series at once [n_series], constant hazard, Normal-Gamma prior.

    Run lengths beyond `longest` are merged into the last. The predictive density is Student-t.
    """

    def __init__(self, first: FloatArray, hazard: float = 1 / 200, longest: int = 300) -> None:
        """Take the first rows [n_series, rows >= 4] of each series to set its prior."""
        centre = np.median(first, axis=1)
        spread = 1.4826 * np.median(np.abs(first - centre[:, None]), axis=1)
        variance = np.maximum(spread, 1e-4 * np.abs(centre) + 1e-12) ** 2
        self.centre, self.kappa0, self.alpha0, self.beta0 = centre, 0.02, 1.0, variance
        self.hazard, self.longest = hazard, longest
        n = len(centre)
        self.alive = 1
        self.log_p = np.full((n, longest + 1), -np.inf)
        self.log_p[:, 0] = 0.0
        self.mean = np.repeat(centre[:, None], longest + 1, axis=1)
        self.beta = np.repeat(variance[:, None], longest + 1, axis=1)
        run = np.arange(longest + 1)
        self.kappa: FloatArray = (self.kappa0 + run).astype(np.float64)
        alpha = self.alpha0 + run / 2
        self.alpha = alpha
        self.constant = np.array(
            [math.lgamma(a + 0.5) - math.lgamma(a) - 0.5 * math.log(2 * math.pi * a) for a in alpha]
        )

    def update(self, x: FloatArray) -> FloatArray:
        """Take one value per series [n_series] and return P(run length <= 3) [n_series]."""
        k = self.alive
        mean, beta = self.mean[:, :k], self.beta[:, :k]
        kappa, alpha = self.kappa[:k], self.alpha[:k]
        gap = x[:, None] - mean
        scale = beta * (kappa + 1) / (alpha * kappa)
        density = self.constant[:k] - 0.5 * np.log(scale)
        density -= (alpha + 0.5) * np.log1p(gap * gap / (2 * alpha * scale))
        weight = self.log_p[:, :k] + density
        top = weight.max(axis=1, keepdims=True)
        total = top[:, 0] + np.log(np.exp(weight - top).sum(axis=1))
        grown: FloatArray = np.exp(weight - total[:, None]).astype(np.float64)
        self._grow(grown, gap, kappa, k)
        return np.asarray(np.exp(self.log_p[:, : SHORT_RUN + 1]).sum(axis=1))

    def _grow(self, grown: FloatArray, gap: FloatArray, kappa: FloatArray, k: int) -> None:
        mean = self.mean[:, :k] + gap / (kappa + 1)
        beta = self.beta[:, :k] + kappa * gap * gap / (2 * (kappa + 1))
        keep = min(k, self.longest)
        new = np.empty((len(grown), keep + 1))
        new[:, 0] = self.hazard
        new[:, 1:] = grown[:, :keep] * (1 - self.hazard)
        if k > self.longest:
            new[:, -1] += grown[:, -1] * (1 - self.hazard)
        with np.errstate(divide="ignore"):
            self.log_p[:, : keep + 1] = np.log(new)
        self.mean[:, 1 : keep + 1] = mean[:, :keep]
        self.beta[:, 1 : keep + 1] = beta[:, :keep]
        self.mean[:, 0] = self.centre
        self.beta[:, 0] = self.beta0
        self.alive = keep + 1

    def reset(self, which: NDArray[np.bool_], level: FloatArray) -> None:
        """Start anew at a level [n_series] the series marked in `which` [n_series]."""
        self.centre = np.where(which, level, self.centre)
        self.log_p[which] = -np.inf
        self.log_p[which, 0] = 0.0
        self.mean[which] = self.centre[which, None]
        self.beta[which] = self.beta0[which, None]


def find_changes(
    values: FloatArray,
    *,
    verify: bool = True,
    window: int = 10,
    gate: float = 0.10,
    medians: bool = False,
) -> list[list[Change]]:
    """Return the changes of many series [n_series, n] found by BOCD, with FALCON's verification.

    With `verify` an alarm counts when the means of `window` rows before and after differ by more
    than `gate`; the change is then said `window` rows after it began. Without, each alarm counts.
    `medians` compares medians instead, which spikes do not move (not in the paper).
    """
    n_series, n = values.shape
    found: list[list[Change]] = [[] for _ in range(n_series)]
    model = Bocd(values[:, : min(FIRST_ROWS, n)])
    quiet_until = np.full(n_series, SHORT_RUN + 2)
    for row in range(n):
        short = model.update(values[:, row])
        alarm = (short > POSTERIOR) & (row >= quiet_until)
        if not alarm.any():
            continue
        for number in np.flatnonzero(alarm):
            at = max(1, row - SHORT_RUN)
            quiet_until[number] = row + SHORT_RUN + 2
            change = _judge(values[number], at, row, verify, window, gate, medians)
            if change is not None:
                found[number].append(change)
    return found


def _judge(
    series: FloatArray, at: int, row: int, verify: bool, window: int, gate: float, medians: bool
) -> Change | None:
    centre = np.median if medians else np.mean
    before = float(centre(series[max(0, at - window) : at]))
    if not verify:
        return Change(at, row, before, float(series[at : row + 1].mean()))
    after = float(centre(series[at : at + window]))
    if abs(after - before) <= gate * before:
        return None
    return Change(at, min(len(series) - 1, max(row, at + window - 1)), before, after)
