"""Who differs from its like: beta, mu and sigma of each function, compared inside roles.

EROICA counts how many sampled workers differ by a fixed distance; on alike workers its median
deviation is zero and noise is flagged. Here each value is held against median and deviation of its
role, with floors for both and a limit that grows with the number of comparisons.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from rerail.domain.series import FloatArray, IntArray
from rerail.tools.profiles.channels import BETA, Float32

EFFECT = (0.10, 0.10, 0.50)
LEAST_BETA = 1e-3
_LEAST_SPREAD = 0.01
_MAD = 1.4826
_SAMPLE = 2000
_FEW = 4
Hits = tuple[NDArray[np.float64], ...]


@dataclass(frozen=True, eq=False)
class Differences:
    """Pairs of function and worker that differ, with the channel, the value and its role's median."""

    function: IntArray
    channel: IntArray
    worker: IntArray
    value: FloatArray
    reference: FloatArray
    z: FloatArray


def z_limit(count: int) -> float:
    """Return the limit that `count` healthy values stay under, heavy tails included; at least 8."""
    return max(8.0, math.sqrt(2 * math.log(max(count, 2))) + 2)


def differences(
    pattern: Float32, role: IntArray, *, noise: FloatArray | None = None
) -> Differences:
    """Compare each worker with the others of its role, function by function.

    `pattern` (F, 3, W), `role` (W,), `noise` (F, roles) is the relative error of a worker's beta
    that its own steps show. Roles of fewer than four workers have no reference and are left out.
    """
    order = np.argsort(role, kind="stable")
    ordered = role[order]
    starts = np.concatenate([[0], np.flatnonzero(np.diff(ordered)) + 1, [len(order)]])
    parts = [(a, b) for a, b in pairwise(starts.tolist()) if b - a >= _FEW]
    limit = z_limit(pattern.size)
    sorted_already = bool((order == np.arange(len(order))).all())

    def one(function: int) -> list[Hits]:
        found: list[Hits] = []
        rows = pattern[function] if sorted_already else np.take(pattern[function], order, axis=1)
        for a, b in parts:
            found += _role(rows[:, a:b], function, order[a:b], limit, noise, int(ordered[a]))
        return found

    parts_found = [row for function in range(len(pattern)) for row in one(function)]
    columns = [
        np.concatenate([row[i] for row in parts_found]) if parts_found else np.zeros(0)
        for i in range(6)
    ]
    whole = [columns[i].astype(np.int64) for i in range(3)]
    return Differences(whole[0], whole[1], whole[2], columns[3], columns[4], columns[5])


def _role(
    rows: Float32, function: int, who: IntArray, limit: float, noise: FloatArray | None, role: int
) -> list[Hits]:
    """Return the differing workers of one function in one role."""
    step = max(1, rows.shape[1] // _SAMPLE)
    sample = rows[:, ::step]
    middle_beta = _middle(sample[BETA])
    if middle_beta < LEAST_BETA and float(rows[BETA].max()) < 10 * LEAST_BETA:
        return []
    out: list[Hits] = []
    for channel in range(len(rows)):
        seen = sample[channel]
        if channel != BETA and np.isnan(seen.sum()):
            seen = seen[np.isfinite(seen)]
            if len(seen) < _FEW:
                continue
        middle = _middle(seen)
        least = max(_LEAST_SPREAD, float(noise[function, role]) if noise is not None else 0.0)
        width = max(
            _MAD * _middle(np.abs(seen - middle)), least * abs(middle), 1e-6 * (channel == BETA)
        )  # fmt: skip
        reach = max(limit * width, EFFECT[channel] * abs(middle), LEAST_BETA * (channel == BETA))
        values = rows[channel]
        # The extremes alone first: in most channels nobody differs. A NaN leaves it to the look at each value.
        if values.max() <= middle + reach and values.min() >= middle - reach:
            continue
        hit = np.flatnonzero((values > middle + reach) | (values < middle - reach))
        if not len(hit):
            continue
        given = values[hit].astype(np.float64)
        out.append(
            (
                np.full(len(hit), function, dtype=np.float64),
                np.full(len(hit), channel, dtype=np.float64), who[hit].astype(np.float64), given,
                np.full(len(hit), middle), (given - middle) / width,
            )
        )  # fmt: skip
    return out


def _middle(values: Float32) -> float:
    """Return the upper median; exact enough for a reference and several times faster."""
    half = len(values) // 2
    return float(np.partition(values, half)[half])
