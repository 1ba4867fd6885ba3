"""S2: how many micro-batches each data-parallel group gets, so that the slowest ends earliest.

FALCON minimises the variance of the groups' times; that is another problem (its optimum is up to
11.8 per cent slower in small cases). Here the maximum itself is minimised, exactly: a continuous
water level, rounded down, then at most one unit more for each group by a heap. O(n log n).
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from rerail.errors import RecoveryError


def split(
    unit_time_s: ArrayLike,
    total: int,
    *,
    overhead_units: float = 0.0,
    least: int = 1,
    multiple: int = 1,
) -> list[int]:
    """Return micro-batch counts [n] with the given sum that minimise max t_i * (m_i + overhead).

    `unit_time_s` [n] is the time of one micro-batch in each group, `overhead_units` what a pipeline
    adds (its stages minus one), `least` the fewest a group may get, `multiple` what every count must
    be divisible by (1F1B with interleaving).

    Raises:
        RecoveryError: Times that are not positive and finite, or a total that cannot be split so.
    """
    times = np.asarray(unit_time_s, dtype=np.float64)
    count = len(times)
    if times.ndim != 1 or not count or not np.all(np.isfinite(times) & (times > 0)):
        raise RecoveryError("micro-batch times must be positive and finite", subject="unit_time_s")
    floor = -(-least // multiple)
    if multiple < 1 or total % multiple or total < floor * multiple * count:
        raise RecoveryError(
            f"{total} micro-batches cannot be split over {count} groups in multiples of {multiple} "
            f"with at least {least} each",
            subject="total",
        )
    units, shift = total // multiple, overhead_units / multiple
    rates = 1.0 / times
    lifted = np.zeros(count, dtype=bool)  # groups that stay at the lower bound
    level = 0.0
    while not lifted.all():
        open_rates = rates[~lifted]
        rest = units - floor * int(lifted.sum())
        level = (rest + shift * len(open_rates)) / float(open_rates.sum())
        below = ~lifted & (level * rates - shift < floor)
        if not below.any():
            break
        lifted |= below
    # The margin keeps a level that is a whole number in theory from being rounded to one less.
    counts = np.maximum(floor, np.floor(level * rates - shift + 1e-9)).astype(np.int64)
    counts[lifted] = floor
    left = units - int(counts.sum())
    heap = [(times[i] * (counts[i] + 1 + shift), int(i)) for i in range(count)]
    heapq.heapify(heap)
    for _ in range(max(0, left)):
        _, i = heapq.heappop(heap)
        counts[i] += 1
        heapq.heappush(heap, (times[i] * (counts[i] + 1 + shift), i))
    for _ in range(max(0, -left)):  # the margin may have given one unit too many
        i = int(np.argmax(np.where(counts > floor, times * (counts + shift), -np.inf)))
        counts[i] -= 1
    return [int(one) * multiple for one in counts]


def split_by_table(tables: Sequence[Sequence[float]], total: int) -> list[int]:
    """Return counts [n] that minimise the largest time, for any rising time of each group.

    `tables[i][m - 1]` is the time of group i with m micro-batches, for m from 1 up. Exact, by
    bisection over all values that occur. Used where a pipeline's time is not linear in m.

    Raises:
        RecoveryError: The tables are too short for the total, or too many groups for it.
    """
    count = len(tables)
    if total < count or sum(len(one) for one in tables) < total:
        raise RecoveryError(f"{total} micro-batches do not fit {count} tables", subject="total")
    values = sorted({value for table in tables for value in table})
    low, high = 0, len(values) - 1
    while low < high:
        middle = (low + high) // 2
        fits = [bisect_right(table, values[middle]) for table in tables]
        if min(fits) >= 1 and sum(fits) >= total:
            high = middle
        else:
            low = middle + 1
    counts = [bisect_right(table, values[low]) for table in tables]
    surplus = sum(counts) - total
    # Any unit beyond the total may go, from the slowest first; the maximum cannot rise by it.
    heap = [(-tables[i][counts[i] - 1], i) for i in range(count) if counts[i] > 1]
    heapq.heapify(heap)
    while surplus:
        _, i = heapq.heappop(heap)
        counts[i] -= 1
        surplus -= 1
        if counts[i] > 1:
            heapq.heappush(heap, (-tables[i][counts[i] - 1], i))
    return counts


def makespan_s(unit_time_s: ArrayLike, counts: Sequence[int], overhead_units: float = 0.0) -> float:
    """Return the time of the slowest group."""
    times = np.asarray(unit_time_s, dtype=np.float64)
    return float(np.max(times * (np.asarray(counts) + overhead_units)))
