"""Who differs from its like: medians and deviations per role, with an answer when nobody is normal.

Shared by ranks and links. The deviation is taken per role, because pooling over roles flags
healthy ranks (six findings in 20 healthy windows of 65,536 ranks against none; detectors.md 3.2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rerail.domain.series import FloatArray, IntArray

_MAD = 1.4826
_LEAST_SPREAD = 0.003
_SPLIT_FROM = 0.25
_SPLIT_GAP = 0.05
_TOO_MANY = 0.4
_FEW = 4


@dataclass(frozen=True, eq=False)
class Comparison:
    """Which values stand out, and from what.

    `slow` holds their indices; `reference` and `z` (distance in deviations) are known for all
    values of a role that has a slow one and NaN elsewhere. `roles` counts the roles, `split`
    names those in which so many are slow that none is a reference.
    """

    reference: FloatArray
    z: FloatArray
    slow: IntArray
    roles: int
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
    order, starts = _by_role(role)
    mine = values[order]
    parts = list(zip(starts, [*starts[1:], len(mine)], strict=True))
    seen = [_centre(mine[start:end], effect) for start, end in parts]
    relative = [
        one.width / one.middle
        for one, (start, end) in zip(seen, parts, strict=True)
        if end - start >= _FEW and one.middle > 0
    ]
    usual = float(np.median(relative)) if relative else own_spread
    # Medians over few noisy steps differ by chance, however alike the ranks seem to be.
    least = max(_LEAST_SPREAD, own_spread or 0.0)
    limit = z_limit(len(values))
    reference, z = np.full_like(values, np.nan), np.full_like(values, np.nan)
    slow: list[IntArray] = []
    split: list[int] = []
    for one, (start, end) in zip(seen, parts, strict=True):
        if one.split:
            split.append(int(role[order[start]]))
            continue
        width = one.width
        if end - start < _FEW:
            # Two or three of a kind cannot show their own spread.
            width = one.middle * (math.inf if usual is None else usual)
        width = max(width, least * max(one.middle, 1e-12), 1e-12)
        if one.top < one.middle * (1 + effect) or (one.top - one.middle) / width < limit:
            continue
        part = order[start:end]
        reference[part], z[part] = one.middle, (values[part] - one.middle) / width
        slow.append(part[(z[part] >= limit) & (values[part] >= one.middle * (1 + effect))])
    who = np.sort(np.concatenate(slow)) if slow else np.zeros(0, dtype=np.int64)
    return Comparison(reference, z, who, len(parts), tuple(split))


def _by_role(role: IntArray) -> tuple[IntArray, list[int]]:
    """Return the order that puts equal roles (n,) side by side, and where each of them begins."""
    if 0 <= role.min() and role.max() < 1 << 16:
        role = role.astype(np.uint16)  # of two bytes the stable sort is linear
    order = np.argsort(role, kind="stable")
    ordered = role[order]
    return order, [0, *(np.flatnonzero(ordered[1:] != ordered[:-1]) + 1).tolist()]


class _Role(NamedTuple):
    """The reference, spread and largest value of a role, and whether it falls into two halves."""

    middle: float
    width: float
    top: float
    split: bool = False


def _centre(values: FloatArray, effect: float) -> _Role:
    ordered = np.sort(values)
    if math.isnan(ordered[-1]):  # a group whose transfers were not seen says nothing of others
        ordered = ordered[: int(np.searchsorted(ordered, np.nan))]
        if not len(ordered):
            return _Role(0.0, 0.0, 0.0)
    n = len(ordered)
    top = float(ordered[-1])
    if n < _FEW:
        return _Role(float(ordered[(n - 1) // 2]), 0.0, top)
    middle, width = _middle(ordered), _spread(ordered)
    low, high = max(1, int(n * _SPLIT_FROM)), max(2, math.ceil(n * (1 - _SPLIT_FROM)))
    gaps = ordered[low : high + 1] - ordered[low - 1 : high]
    if len(gaps):
        at = low + int(gaps.argmax())
        below, above = ordered[:at], ordered[at:]
        if _middle(above) - _middle(below) >= max(_SPLIT_GAP, effect) * max(middle, 1e-12):
            apart = float(ordered[at] - ordered[at - 1])
            if apart >= 3 * max(_spread(below), _spread(above)):
                if len(above) / n >= _TOO_MANY:
                    return _Role(middle, width, top, split=True)
                return _Role(_middle(below), _spread(below), top)
    return _Role(middle, width, top)


def robust_spread(values: FloatArray) -> float:
    """Return the standard deviation that normal values of this median deviation have."""
    return _spread(np.sort(values, axis=None))


def _middle(ordered: FloatArray) -> float:
    """Return the median of sorted values."""
    half = len(ordered) // 2
    upper = float(ordered[half])
    return upper if len(ordered) % 2 else (float(ordered[half - 1]) + upper) / 2


def _spread(ordered: FloatArray) -> float:
    """Return the robust spread of sorted values.

    The k values nearest to the median lie side by side, so the k-th smallest deviation is the
    least reach of any k neighbours; nothing is sorted again.
    """
    middle, n = _middle(ordered), len(ordered)

    def kth(k: int) -> float:
        reach = np.maximum(middle - ordered[: n - k + 1], ordered[k - 1 :] - middle)
        return float(reach.min())

    half = n // 2
    return _MAD * (kth(half + 1) if n % 2 else (kth(half) + kth(half + 1)) / 2)
