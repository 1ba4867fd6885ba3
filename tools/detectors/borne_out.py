"""Which changes the whole series bears out: what a short stretch of lucky steps made look slow, or a rise, is none.

The detector judges step by step, against the level that it learned last. Here each phase is compared once more with all
healthy steps before it. Blocks of steps stand for one value each, so that noise that drifts counts as what it is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rerail.domain.series import FloatArray, IntArray
from rerail.tools.detectors.baseline import FULL_DELTA
from rerail.tools.detectors.events import Episode

BLOCK = 16  # steps
LEAST_BLOCKS = 4
SIGMAS = 4.0
HIGHEST = 0.95  # quantile
FAR = float(np.log(1.5))
LEAST_SHARE = 0.5
"""Share of the change that the detector must find, or of what it measured where that is less."""
RECENT = 50  # rows in front of a rise that tell the level: those before them may be of a loss that still fell
LEAST_BEFORE, LEAST_BEHIND = 5, 20
MOST = 0.8
"""Share of the rows behind a rise that are higher than all of those in front of it."""


def borne_out(phases: Sequence[Episode], time_s: FloatArray, rows: IntArray) -> list[bool]:
    """Tell of each phase, in their order, whether the steps outside all phases before it were faster.

    Args:
        phases: in the order of their rows.
        time_s: seconds of each row [n]; only those of `rows` count.
        rows: rows with a known time, in order.
    """
    healthy = np.ones(len(time_s), dtype=bool)
    found = []
    for phase in phases:
        before = rows[(rows < phase.first) & healthy[rows]]
        inside = rows[(rows >= phase.first) & (rows < phase.last)]
        slow = _is_slower(np.log(time_s[before]), np.log(time_s[inside]), phase)
        found.append(slow)
        if slow:
            healthy[phase.first : phase.last] = False
    return found


def _is_slower(before: FloatArray, inside: FloatArray, phase: Episode) -> bool:
    size = min(BLOCK, len(before) // LEAST_BLOCKS, len(inside) // LEAST_BLOCKS)
    if size < 1:
        return True  # too short to be judged better than step by step
    blocks, others = _blocks(before, size), _blocks(inside, size)
    change = float(np.median(others) - np.median(blocks))
    spread = 1.4826 * max(
        float(np.median(np.abs(values - np.median(values)))) for values in (blocks, others)
    )
    doubt = spread * float(np.sqrt(1 / len(blocks) + 1 / len(others)))
    claimed = min(FULL_DELTA, float(np.log(phase.worst_s / phase.before_s)))
    # A phase whose steps differ widely among each other is slow where half of it is far slower than all before it.
    apart = change >= FAR and float(np.median(others)) > float(np.quantile(blocks, HIGHEST))
    return change >= LEAST_SHARE * claimed and (apart or change >= SIGMAS * doubt)


def _blocks(values: FloatArray, size: int) -> FloatArray:
    whole = len(values) // size * size
    return np.asarray(np.median(values[:whole].reshape(-1, size), axis=1))


def rises(heights: FloatArray, first: int) -> bool:
    """Tell whether all rows of a loss from one on stand apart from those before it, and not by its own noise alone.

    Args:
        heights: the finite losses since the run began, on the scale that is watched (log).
        first: the first row of the rise.
    """
    before, behind = heights[max(0, first - RECENT) : first], heights[first:]
    if len(before) < LEAST_BEFORE and len(behind) < LEAST_BEHIND:
        return True  # too short to be judged better than row by row
    if len(before) >= LEAST_BEFORE and float(np.mean(behind > before.max())) >= MOST:
        return True
    noise = noise_of(behind)
    own = noise_of(heights[:first]) if first > LEAST_BEHIND else noise
    doubt = 1.25 * float(np.sqrt(own**2 / max(1, len(before)) + noise**2 / len(behind)))
    return float(np.median(behind) - np.median(before)) >= SIGMAS * doubt if len(before) else True


def noise_of(heights: FloatArray) -> float:
    """Return how much neighbours differ by noise; trends and jumps do not count."""
    if len(heights) < LEAST_BLOCKS:
        return 0.0
    return 1.4826 / float(np.sqrt(2)) * float(np.median(np.abs(np.diff(heights))))
