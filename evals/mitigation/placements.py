"""Bar M2, first half: what S2 and S3 recover of a slowdown, by the exact 1F1B model."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rerail.recovery.mitigation.micro_batches import split_by_table
from rerail.recovery.mitigation.placement import gather_by_stage, gather_slow
from rerail.tools.forecast.replica_time import replica_time_s, table_s

GRIDS = ((2, 4, 16), (4, 4, 8), (4, 4, 16), (8, 8, 16), (16, 8, 32), (32, 8, 32))
Grid = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Recovered:
    """Mean share recovered by each way, and its tenth percentile. DP, PP, micro-batches a replica."""

    grid: tuple[int, int, int]
    jobs: int
    mean: dict[str, float]
    tenth: dict[str, float]
    moves: float


def even_s(grid: Grid, batches: int) -> float:
    """Return the step time with an even split."""
    return max(replica_time_s(row, batches) for row in grid)


def split_s(grid: Grid, batches: int) -> float:
    """Return the step time with the best split over the replicas."""
    longest = max(2 * batches, batches + 8)
    tables = [table_s(row, longest) for row in grid]
    counts = split_by_table(tables, batches * len(grid))
    return max(table[count - 1] for table, count in zip(tables, counts, strict=True))


def recovered(shape: tuple[int, int, int], jobs: int, seed: int) -> Recovered:
    """Draw jobs with one to four slow nodes (1.2 to 3 times) and let each way mend them."""
    replicas, stages, batches = shape
    draw = random.Random(seed)
    shares: dict[str, list[float]] = {}
    moves = []
    healthy = replica_time_s((1.0,) * stages, batches)
    for _ in range(jobs):
        rows = [[1.0] * stages for _ in range(replicas)]
        for place in draw.sample(range(replicas * stages), draw.randint(1, 4)):
            rows[place // stages][place % stages] = draw.uniform(1.2, 3.0)
        before: Grid = tuple(tuple(row) for row in rows)
        slow = even_s(before, batches)
        same_stage = gather_by_stage(before).slowdown
        gathered = gather_slow(before)
        moves.append(2 * len(gathered.swaps))
        ways = {
            "S2": split_s(before, batches),
            "stage": even_s(same_stage, batches),
            "stage+S2": split_s(same_stage, batches),
            "replica+S2": split_s(gathered.slowdown, batches),
        }
        for name, value in ways.items():
            shares.setdefault(name, []).append((slow - value) / (slow - healthy))
    return Recovered(
        shape,
        jobs,
        {name: float(np.mean(one)) for name, one in shares.items()},
        {name: float(np.percentile(one, 10)) for name, one in shares.items()},
        float(np.mean(moves)),
    )


def link_recovered(
    replicas: int, stages: int, batches: int, share: float, factors: Sequence[float]
) -> list[float]:
    """Return what moving a slow link from data-parallel to pipeline traffic recovers, by factor.

    `share` is the data-parallel exchange's part of the healthy step. A pipeline transfer takes
    1/50 of a stage's time; on the slow link it takes `factor` times that, forwards and backwards.
    """
    compute = replica_time_s((1.0,) * stages, batches)
    exchange = compute * share / (1.0 - share)
    healthy = compute + exchange
    found = []
    for factor in factors:
        slow = compute + exchange * factor
        # The stage behind the slow edge waits for each transfer: its time grows by the excess.
        edge = (factor - 1.0) * 2.0 / 50.0
        moved = replica_time_s((1.0 + edge,) + (1.0,) * (stages - 1), batches) + exchange
        found.append((slow - moved) / (slow - healthy))
    return found
