"""The part of a collective in which data moves: the waiting head is cut off (EROICA, Algorithm 1).

Our reading of the published description: cut at runs of more than g zero samples, take the piece
with the most use, and find the smallest g whose piece holds 0.8 of all use.
"""

from __future__ import annotations

import numpy as np

from rerail.domain.series import FloatArray, IntArray

SHARE = 0.8


def critical_span(use: FloatArray, share: float = SHARE) -> tuple[int, int, int]:
    """Return (first, end, g) of the critical samples; (0, 0, 0) where nothing was used.

    `use` (n,) are samples of one execution, NaN counted as zero.
    """
    given = np.nan_to_num(use, nan=0.0)
    busy = np.flatnonzero(given > 0)
    if not len(busy):
        return 0, 0, 0
    gaps: IntArray = np.diff(busy) - 1
    total = np.concatenate([[0.0], np.cumsum(given[busy])])
    # What a larger g holds never shrinks, so the smallest one is found by bisection over the gaps.
    sizes = np.unique(np.concatenate([[0], gaps]))
    low, high = 0, len(sizes) - 1
    while low < high:
        middle = (low + high) // 2
        if _best(busy, gaps, total, int(sizes[middle]))[2] >= share * total[-1]:
            high = middle
        else:
            low = middle + 1
    first, last, _ = _best(busy, gaps, total, int(sizes[low]))
    return int(busy[first]), int(busy[last]) + 1, int(sizes[low])


def _best(busy: IntArray, gaps: IntArray, total: FloatArray, g: int) -> tuple[int, int, float]:
    """Return the first and last busy sample of the piece with the most use, and that use."""
    cuts = np.flatnonzero(gaps > g)
    first = np.concatenate([[0], cuts + 1])
    last = np.concatenate([cuts, [len(busy) - 1]])
    held = total[last + 1] - total[first]
    at = int(held.argmax())
    return int(first[at]), int(last[at]), float(held[at])
