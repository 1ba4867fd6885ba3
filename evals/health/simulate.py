"""Bar H1: exact sets of faulty nodes, and false accusations of slowness, on simulated clusters."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from rerail.tools.health.find_faulty import find_faulty
from rerail.tools.health.find_slow import find_slow
from rerail.tools.health.pairs import Pair, pairs_of_round

SIZES = (2, 3, 8, 16, 63, 64, 128)
SHARE = 0.15
NOISE = 0.02


@dataclass(frozen=True)
class Row:
    """One size of cluster over many draws."""

    nodes: int
    bad: int
    runs: int
    exact: int
    rounds: float
    slow: int
    slow_false: dict[int, float]
    slow_missed: dict[int, float]


def simulate(nodes: int, runs: int, seed: int) -> Row:
    """Draw faulty nodes (0.15 n) and slow nodes (n / 16) anew in every run."""
    draw = random.Random(seed * 1000 + nodes)
    bad_count, slow_count = int(SHARE * nodes), nodes // 16
    exact, used = 0, 0
    false = dict.fromkeys((1, 2, 3), 0)
    missed = dict.fromkeys((1, 2, 3), 0)
    for _ in range(runs):
        bad = set(draw.sample(range(nodes), bad_count))

        def probe(pairs: Sequence[Pair], repeats: int, bad: set[int] = bad) -> set[Pair]:
            return {pair for pair in pairs if bad & set(pair)}

        found = find_faulty(nodes, probe)
        exact += set(found.faulty) == bad and not found.abstained
        used += found.rounds
        slow = set(draw.sample(range(nodes), slow_count))
        measured: dict[Pair, float] = {}
        for number in (1, 2, 3):
            for pair in pairs_of_round(nodes, number - 1):
                value = 0.7 if slow & set(pair) else 1.0
                measured[pair] = value * draw.gauss(1.0, NOISE)
            named = set(find_slow(measured).nodes)
            false[number] += len(named - slow)
            missed[number] += len(slow - named) if nodes >= 4 else 0
    return Row(
        nodes,
        bad_count,
        runs,
        exact,
        used / runs,
        slow_count,
        {k: v / runs for k, v in false.items()},
        {k: v / runs for k, v in missed.items()},
    )


def intermittent(probability: float, repeats: int, runs: int, seed: int = 1) -> float:
    """Return how often one node of 16 that fails with a probability per test is named exactly."""
    draw = random.Random(seed)
    hits = 0
    for _ in range(runs):

        def probe(pairs: Sequence[Pair], times: int) -> set[Pair]:
            return {
                pair
                for pair in pairs
                if 5 in pair and any(draw.random() < probability for _ in range(times))
            }

        hits += find_faulty(16, probe, repeats=repeats).faulty == (5,)
    return hits / runs
