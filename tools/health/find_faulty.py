"""Which nodes fail collectives: Acme's two rounds, with repeats, odd counts and an honest end.

Round 1 tests disjoint pairs; nodes of failing pairs are suspects. Round 2 tests each suspect with a
node known to be good, so a failing pair convicts (Acme, NSDI'24, section 6.1). Added here: repeats
for faults that show only sometimes, a rest instead of a world of three for odd counts, further
rounds where there are more suspects than good nodes, and no verdict where no pair works at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rerail.tools.health.pairs import Pair, pairs_of_round, rounds

Probe = Callable[[Sequence[Pair], int], set[Pair]]
"""Tests disjoint pairs at once, each so often as told; returns the pairs in which any test failed."""


@dataclass(frozen=True, slots=True)
class FaultyNodes:
    """The verdict. `abstained` says why there is none; then `suspects` holds who was not cleared."""

    faulty: tuple[int, ...] = ()
    good: tuple[int, ...] = ()
    suspects: tuple[int, ...] = ()
    rounds: int = 0
    abstained: str = ""


def find_faulty(count: int, probe: Probe, *, repeats: int = 3) -> FaultyNodes:
    """Return the nodes whose collectives fail, out of `count` nodes numbered from 0.

    With `repeats` r a fault that shows with probability p is found with (1 - (1 - p)^r)^2.
    """
    if count < 2:
        return FaultyNodes(suspects=tuple(range(count)), abstained="a pair needs two nodes")
    good: set[int] = set()
    faulty: set[int] = set()
    used = 0
    for number in range(rounds(count)):
        pairs = pairs_of_round(count, number)
        failing = probe(pairs, repeats)
        used += 1
        good |= {node for pair in pairs if pair not in failing for node in pair}
        if good:
            break
    if not good:
        return FaultyNodes(
            suspects=tuple(range(count)),
            rounds=used,
            abstained="no pair of nodes works: the fault may lie in what they share",
        )
    open_nodes = [node for node in range(count) if node not in good]
    while open_nodes:
        # Each suspect meets a node of its own that is known to be good.
        batch = open_nodes[: len(good)]
        witnesses = dict(zip(batch, sorted(good), strict=False))
        asked = {node: _pair(node, witness) for node, witness in witnesses.items()}
        failing = probe(sorted(asked.values()), repeats)
        used += 1
        for node, pair in asked.items():
            (faulty if pair in failing else good).add(node)
        open_nodes = open_nodes[len(batch) :]
    return FaultyNodes(tuple(sorted(faulty)), tuple(sorted(good)), rounds=used)


def _pair(one: int, other: int) -> Pair:
    return (min(one, other), max(one, other))
