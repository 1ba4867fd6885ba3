"""Who differs from its like: medians and deviations per role, with an answer when nobody is normal.

Shared by ranks and links. The deviation is taken per role, because pooling over roles flags
healthy ranks (six findings in 20 healthy windows of 65,536 ranks against none; detectors.md 3.2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rerail.domain.series import BoolArray, FloatArray, IntArray

_MAD = 1.4826
_LEAST_SPREAD = 0.003
_SPLIT_FROM = 0.25
_SPLIT_GAP = 0.05
_TOO_MANY = 0.4
_FEW = 4


@dataclass(frozen=True, eq=False)
class Comparison:
    """For each value: its reference, its distance in deviations, and whether it stands out.

    `split` names the roles in which so many are slow that none is a reference.
    """

    reference: FloatArray
    z: FloatArray
    slow: BoolArray
    split: tuple[int, ...]


def z_limit(count: int) -> float:
    """Return the limit that `count` healthy normal values stay under, at least 6."""
    return max(6.0, math.sqrt(2 * math.log(max(count, 2))) + 2)


def compare(
    values: FloatArray, role: IntArray, effect: float, own_spread: float | None = None
) -> Comparison:
    """Compare each value (n,) with the others of its role; `effect` is the least ratio - 1.

    Roles of fewer than four take their relative spread from the other roles, or else from
    `own_spread`, and cannot be judged without; of two, the faster is the reference. A role that
    falls into two clusters with 40 % or more in the slow one is `split`.
    """
    reference = np.empty_like(values)
    spread = np.empty_like(values)
    split: list[int] = []
    limit = z_limit(len(values))
    order = np.argsort(role, kind="stable")
    starts = np.flatnonzero(np.diff(role[order], prepend=role[order[0]] - 1))
    parts = np.split(order, starts[1:])
    relative: list[float] = []
    for part in parts:
        mine = values[part]
        middle, width, divided = _centre(mine, effect)
        if divided:
            split.append(int(role[part[0]]))
        reference[part], spread[part] = middle, width
        if len(part) >= _FEW and middle > 0:
            relative.append(width / middle)
    usual = float(np.median(relative)) if relative else math.nan
    for part in parts:
        if len(part) < _FEW:
            # Two or three of a kind cannot show their own spread.
            relative_spread = usual if math.isfinite(usual) else own_spread
            spread[part] = reference[part] * (
                math.inf if relative_spread is None else relative_spread
            )
    # Medians over few noisy steps differ by chance, however alike the ranks seem to be.
    floor = max(_LEAST_SPREAD, own_spread or 0.0)
    spread = np.maximum(spread, floor * np.maximum(reference, 1e-12))
    z = (values - reference) / np.maximum(spread, 1e-12)
    slow = (z >= limit) & (values >= reference * (1 + effect)) & ~np.isin(role, split)
    return Comparison(reference, z, slow, tuple(split))


def _centre(values: FloatArray, effect: float) -> tuple[float, float, bool]:
    """Return (reference, spread, split) of one role."""
    ordered = np.sort(values)
    n = len(ordered)
    if n < _FEW:
        return float(ordered[(n - 1) // 2]), 0.0, False
    middle = float(np.median(ordered))
    width = robust_spread(ordered)
    low, high = max(1, int(n * _SPLIT_FROM)), max(2, math.ceil(n * (1 - _SPLIT_FROM)))
    gaps = ordered[low : high + 1] - ordered[low - 1 : high]
    if len(gaps):
        at = low + int(np.argmax(gaps))
        below, above = ordered[:at], ordered[at:]
        inner = max(robust_spread(below), robust_spread(above))
        gap = float(np.median(above) - np.median(below))
        apart = ordered[at] - ordered[at - 1]
        if gap >= max(_SPLIT_GAP, effect) * max(middle, 1e-12) and apart >= 3 * inner:
            if len(above) / n >= _TOO_MANY:
                return middle, width, True
            return float(np.median(below)), robust_spread(below), False
    return middle, width, False


def robust_spread(values: FloatArray) -> float:
    """Return the standard deviation that normal values of this median deviation have."""
    return _MAD * float(np.median(np.abs(values - np.median(values))))
