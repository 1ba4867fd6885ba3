"""S3: which node plays which role. Slow nodes share one replica; a slow link serves the pipeline.

FALCON gathers stragglers into the same stages, which leaves every replica slow. Gathering them into
one replica leaves one slow replica, which then gets fewer micro-batches (S2). By an exchange
argument, filling replicas in order of speed minimises the slowest, the second slowest, and so on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Place = tuple[int, int]
"""Replica and stage."""


@dataclass(frozen=True, slots=True)
class Placement:
    """`slowdown[r][s]` is how much slower than healthy the node at replica r, stage s is (1.0: not).

    `swaps` are the pairs of places whose nodes change roles, in order; each moves two nodes.
    """

    slowdown: tuple[tuple[float, ...], ...]
    swaps: tuple[tuple[Place, Place], ...] = ()


def gather_slow(slowdown: Sequence[Sequence[float]], threshold: float = 1.05) -> Placement:
    """Return the placement with the slow nodes in as few replicas as possible, by fewest swaps.

    Replicas that hold the most slow nodes already take the rest; only misplaced slow nodes move,
    each for a healthy node of the receiving replica. A node is slow above `threshold`.
    """
    grid = [list(row) for row in slowdown]
    stages = len(grid[0]) if grid else 0
    slow = sorted(
        (
            (grid[r][s], r, s)
            for r in range(len(grid))
            for s in range(stages)
            if grid[r][s] > threshold
        ),
        reverse=True,
    )
    if not slow:
        return Placement(tuple(tuple(row) for row in grid))
    needed = -(-len(slow) // stages)
    weight: dict[int, float] = {r: 0.0 for r in range(len(grid))}
    for value, r, _ in slow:
        weight[r] += 1.0 + 1e-3 * value
    homes = sorted(weight, key=lambda r: (-weight[r], r))[:needed]
    free = [(r, s) for r in homes for s in range(stages) if grid[r][s] <= threshold]
    swaps: list[tuple[Place, Place]] = []
    for _, r, s in slow:
        if r in homes:
            continue
        home_r, home_s = free.pop(0)
        grid[r][s], grid[home_r][home_s] = grid[home_r][home_s], grid[r][s]
        swaps.append(((r, s), (home_r, home_s)))
    return Placement(tuple(tuple(row) for row in grid), tuple(swaps))


def gather_by_stage(slowdown: Sequence[Sequence[float]], threshold: float = 1.05) -> Placement:
    """Return FALCON's placement: the slow nodes in as few stages as possible (kept to compare with).

    Interior stages are preferred, as the paper does.
    """
    grid = [list(row) for row in slowdown]
    replicas, stages = len(grid), len(grid[0])
    slow = sorted((v for row in grid for v in row if v > threshold), reverse=True)
    healthy = [v for row in grid for v in row if v <= threshold]
    order = sorted(range(stages), key=lambda s: (s in (0, stages - 1), s))
    placed = [[1.0] * stages for _ in range(replicas)]
    values = slow + healthy
    for place, stage in enumerate(order):
        for r in range(replicas):
            placed[r][stage] = values[place * replicas + r]
    return Placement(tuple(tuple(row) for row in placed))


@dataclass(frozen=True, slots=True)
class LinkMove:
    """How to take a link out of the data-parallel ring: swap these two places.

    Afterwards the link's two nodes are neighbours in the pipeline of one replica.
    """

    swap: tuple[Place, Place]


def serve_pipeline(
    one: Place, other: Place, stages: int, slowdown: Mapping[Place, float] | None = None
) -> LinkMove | None:
    """Return the swap that turns a slow data-parallel link into a pipeline link.

    `one` and `other` are the link's ends: the same stage of two replicas. The far end moves to the
    neighbouring stage of the first replica; among the possible swaps the one with the healthiest
    counterpart is taken. None where there is only one stage, or the link is no data-parallel link.
    """
    if stages < 2 or one[1] != other[1] or one[0] == other[0]:
        return None
    known = slowdown or {}
    options = [
        (other, (one[0], stage)) for stage in (one[1] - 1, one[1] + 1) if 0 <= stage < stages
    ]
    return LinkMove(min(options, key=lambda swap: (known.get(swap[1], 1.0), swap[1])))
