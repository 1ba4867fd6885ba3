"""Whole chunks of a series in which nothing happens, taken at little cost.

Nearly all rows of a run are near its level or stand alone beside it. What can be known of a chunk
before the level is, its median and scatter, is worked out for many chunks at once; of the two sums
of the CUSUM only the few rows around a far value are followed, since all others lower them. The
state after a chunk is bit for bit the one that taking its rows one by one leaves.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rerail.domain.series import FloatArray
from rerail.tools.detectors.baseline import (
    ALLOWANCE,
    CHUNK,
    CLIP,
    LIKE_SIGMA,
    QUANTUM,
    Level,
    middle_of_rows,
)

_AHEAD = 16  # chunks that are prepared together


class Chunk(NamedTuple):
    """Rows [CHUNK] of log step times with their median and their scatter around it."""

    rows: FloatArray
    median: float
    spread: float


class Ahead:
    """The chunks of a series [n] of log step times, prepared some at a time from any row on."""

    def __init__(self, logs: FloatArray) -> None:
        self._logs = logs
        self._from = 0
        self._chunks: list[Chunk] = []

    def chunk(self, at: int) -> Chunk | None:
        """Return the chunk that begins at row `at`, or None when fewer rows than one are left."""
        number, off = divmod(at - self._from, CHUNK)
        if off or not 0 <= number < len(self._chunks):
            whole = min(_AHEAD, (len(self._logs) - at) // CHUNK)
            if not whole:
                return None
            self._from, number = at, 0
            rows = self._logs[at : at + whole * CHUNK].reshape(whole, CHUNK)
            medians = middle_of_rows(rows)
            spreads = LIKE_SIGMA * middle_of_rows(np.abs(rows - medians[:, None]))
            self._chunks = [
                Chunk(*one) for one in zip(rows, medians.tolist(), spreads.tolist(), strict=True)
            ]
        return self._chunks[number]


class Sums(NamedTuple):
    """The CUSUM behind a chunk.

    `up` and `down` are the sums, `up_from` and `down_from` the rows of the chunk at which they
    last left zero (None: before the chunk), `far` the number of outliers, `run` of how many the
    run is that its last row belongs to, of sign `run_sign` (both 0: it is no outlier).
    """

    up: float
    up_from: int | None
    down: float
    down_from: int | None
    far: int
    run: int
    run_sign: int


def quiet_sums(
    error: FloatArray, level: Level, up: float, down: float, run: int, run_sign: int
) -> Sums | None:
    """Follow the CUSUM through a chunk, or return None when a row of it needs a closer look.

    Args:
        error: distances [CHUNK] of the rows from the level, log.
        level: gives the unit of change, the alarm threshold and the limit of outliers.
        up: sum of rises before the chunk.
        down: sum of falls before the chunk.
        run: rows of the run of outliers that ends right before the chunk, 0 for none.
        run_sign: on which side of the level they lie.
    """
    delta, limit = level.delta, level.limit
    # A row nearer than half a unit lowers both sums; one quantum makes up for the rounding.
    hot = (np.abs(error) >= delta * (ALLOWANCE - 1 / QUANTUM)).nonzero()[0].tolist()
    if run > level.longest:
        return None
    if not hot and not up and not down:
        return Sums(0.0, CHUNK, 0.0, CHUNK, 0, 0, 0)
    values: list[float] = error.tolist()
    before, far = -1, 0
    rising: list[int] = [0] if up else []
    falling: list[int] = [0] if down else []
    for row in hot:
        value = values[row]
        sign = 1 if value > 0 else -1
        if abs(value) > limit:
            run = run + 1 if before == row - 1 and sign == run_sign else 1
            if run > level.longest:
                return None  # the longest run that was no change is what the alarm depends on
            before, run_sign = row, sign
            far += 1
        (rising if sign > 0 else falling).append(row)
    if before != CHUNK - 1:
        run = run_sign = 0
    rise = _follow(values, rising, up, delta, level.h, 1.0)
    if rise is None:
        return None
    fall = _follow(values, falling, down, delta, level.h, -1.0)
    if fall is None:
        return None
    return Sums(*rise, *fall, far, run, run_sign)


def _follow(
    values: list[float], starts: list[int], total: float, delta: float, alarm: float, sign: float
) -> tuple[float, int | None] | None:
    """Follow one sum from each row that may raise it to where it is zero again.

    Returns the sum behind the chunk and the row at which it left zero (None: before the chunk,
    CHUNK: it is zero), or None when it reaches the alarm.
    """
    if not starts:
        return 0.0, CHUNK
    row = 0
    since: int | None = None if total else CHUNK
    for start in starts:
        if start < row:
            continue
        row = start
        if not total:
            since = start
        while row < CHUNK:
            score = sign * values[row] / delta
            if score > CLIP:
                score = CLIP
            elif score < -CLIP:
                score = -CLIP
            total += round(score * QUANTUM) / QUANTUM - ALLOWANCE
            row += 1
            if total <= 0:
                total, since = 0.0, CHUNK
                break
            if total >= alarm:
                return None
    return total, since
