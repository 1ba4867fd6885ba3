"""Which nodes or links are slow, not failing: bandwidth of pairs over three rounds.

A pair is as fast as its slower half, so one round accuses every partner of a slow node. A node's
own speed is the best that it reached with three different partners; a link is slow where a pair
stays behind what both of its ends reached elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rerail.tools.health.pairs import Pair

ROUNDS = 3
SLOW_RATIO = 0.92
LEAST_NODES = 4


@dataclass(frozen=True, slots=True)
class SlowParts:
    """Slow nodes and slow links with their share of the typical bandwidth (a ratio below 1)."""

    nodes: dict[int, float]
    links: dict[Pair, float]
    typical_bytes_per_s: float
    abstained: str = ""


def find_slow(bandwidth_bytes_per_s: Mapping[Pair, float]) -> SlowParts:
    """Judge the measured bandwidth of pairs; every node should have met at least three others."""
    nodes = sorted({node for pair in bandwidth_bytes_per_s for node in pair})
    if len(nodes) < LEAST_NODES:
        return SlowParts({}, {}, 0.0, "fewer than four nodes: a slow one cannot be told apart")
    best = {node: 0.0 for node in nodes}
    for pair, value in bandwidth_bytes_per_s.items():
        for node in pair:
            best[node] = max(best[node], value)
    typical = float(np.median(list(best.values())))
    if typical <= 0:
        return SlowParts({}, {}, typical, "no pair moved any data")
    slow = {n: round(v / typical, 3) for n, v in best.items() if v < SLOW_RATIO * typical}
    if 2 * len(slow) >= len(nodes):
        return SlowParts({}, {}, typical, "half of the nodes differ: there is no typical speed")
    links = {}
    for pair, value in bandwidth_bytes_per_s.items():
        able = min(best[pair[0]], best[pair[1]])
        if value < SLOW_RATIO * able and not slow.keys() & set(pair):
            links[pair] = round(value / able, 3)
    return SlowParts(slow, _worth_naming(links, bandwidth_bytes_per_s), typical)


def _worth_naming(links: dict[Pair, float], measured: Mapping[Pair, float]) -> dict[Pair, float]:
    """Drop links within the noise of all pairs: a link has to be an outlier of its own kind."""
    values = np.array(list(measured.values()))
    middle = float(np.median(values))
    spread = 1.4826 * float(np.median(np.abs(values - middle))) / middle if middle else 0.0
    limit = min(SLOW_RATIO, 1.0 - 6.0 * spread)
    return {pair: ratio for pair, ratio in links.items() if ratio < limit}
