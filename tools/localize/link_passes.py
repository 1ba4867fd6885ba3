"""Which pairs to measure to find one slow link of a ring or tree in a constant number of passes.

A collective shows only its slowest edge, so a suspected group is tested link by link with
point-to-point transfers that do not share a rank within a pass: two passes for a ring of even
size, three for an odd one, four for a tree (FALCON, arXiv 2410.12588, section 4.3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

Pair = tuple[int, int]
SLOW_RATIO = 1.1


def ring_passes(ring: Sequence[int]) -> list[list[Pair]]:
    """Return the passes of (sender, receiver) that cover each link of a ring once.

    Raises:
        ValueError: fewer than two ranks, or a rank twice.
    """
    count = len(ring)
    if count < 2 or len(set(ring)) != count:
        raise ValueError(f"a ring needs two or more different ranks, not {list(ring)}")
    links = [(ring[i], ring[(i + 1) % count]) for i in range(count)]
    if count == 2:
        return [[links[0]], [links[1]]]
    passes = [links[0 : count - count % 2 : 2], links[1 : count - count % 2 : 2]]
    if count % 2:
        passes.append([links[-1]])
    return passes


def tree_passes(parents: Mapping[int, int]) -> list[list[Pair]]:
    """Return four passes of (child, parent) over the edges of a binary tree, empty ones left out.

    Left children, then right children, of even levels and then of odd ones, so that no rank is in
    two transfers of a pass. `parents` maps each rank but the root to its parent.

    Raises:
        ValueError: a parent has more than two children, or the edges hold a circle.
    """
    children: dict[int, list[int]] = {}
    for child, parent in sorted(parents.items()):
        children.setdefault(parent, []).append(child)
    if any(len(ones) > 2 for ones in children.values()):
        raise ValueError("a tree of collectives has at most two children per rank")
    passes: list[list[Pair]] = [[], [], [], []]
    for parent, ones in children.items():
        for side, child in enumerate(ones):
            passes[2 * (_level(parent, parents) % 2) + side].append((child, parent))
    return [one for one in passes if one]


def _level(rank: int, parents: Mapping[int, int]) -> int:
    level = 0
    while rank in parents:
        rank, level = parents[rank], level + 1
        if level > len(parents):
            raise ValueError("the parents hold a circle")
    return level


def slow_links(times_s: Mapping[Pair, float], ratio: float = SLOW_RATIO) -> list[Pair]:
    """Return the links slower than `ratio` times the median of equal transfers, slowest first."""
    if len(times_s) < 3:
        return []
    limit = ratio * median(times_s.values())
    return sorted((p for p, t in times_s.items() if t > limit), key=lambda p: -times_s[p])
