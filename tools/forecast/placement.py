"""Where slow nodes hurt least: a search over stages and replicas with measured node speeds.

The step ends with the slowest replica, so the search lowers the slowest one, then the second
slowest, and so on: slow nodes are gathered by speed into as few replicas as possible, each replica
orders its nodes over its stages, and pairs are exchanged while that helps. Jobs of up to 1,024 nodes
are also begun with slow nodes dealt out over the replicas, and as they are. The pipeline itself is
evaluated, many candidates as one array. Falcon (arXiv 2410.12588) sweeps; PRISM reports up to 1.26x.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np

from rerail.domain.series import FloatArray
from rerail.tools.forecast.spec import Spec
from rerail.tools.forecast.step import StepModel

_MOST_EXHAUSTIVE = 40_320  # eight stages: all orders of one replica
_MOST_ROUNDS = 200
_MOST_STARTS = 1024  # nodes up to which several beginnings are searched
_EQUAL = 1e-9

Evaluate = Callable[[FloatArray], FloatArray]
"""Times [replicas] of replicas whose stages are slower by factors [replicas, stages]."""


@dataclass(frozen=True, eq=False)
class PlacementFound:
    """Number of the node at each place [replicas, stages], and step times in seconds.

    `node` is the best placement found, `worst_node` the worst that was seen; `given_s` is that in order
    of the nodes' numbers, `healthy_s` that without any slow node. All times are without noise.
    """

    node: np.ndarray
    worst_node: np.ndarray
    best_s: float
    given_s: float
    worst_s: float
    healthy_s: float
    evaluated: int

    @property
    def gain(self) -> float:
        """Return the given placement's time over the best one's."""
        return self.given_s / self.best_s

    @property
    def best_to_worst(self) -> float:
        """Return the worst placement's time over the best one's."""
        return self.worst_s / self.best_s


def place_nodes(
    slowdown: Sequence[float], replicas: int, stages: int, evaluate: Evaluate
) -> PlacementFound:
    """Search the best place for every node; `slowdown[n]` is how much slower node n is.

    One node holds one stage of one replica.
    """
    speed = np.asarray(slowdown, dtype=np.float64)
    times = _Times(evaluate)
    given = np.arange(replicas * stages).reshape(replicas, stages)
    given_s = float(times.of(speed[given]).max())
    healthy_s = float(times.of(np.ones((1, stages)))[0])
    order = np.argsort(-speed, kind="stable")
    starts = [_ordered(order.reshape(replicas, stages), speed, times)]
    if len(speed) <= _MOST_STARTS:
        starts += [_ordered(order.reshape(stages, replicas).T, speed, times), given]
    searched = [_exchange(start, speed, times) for start in starts]
    best = min(searched, key=lambda grid: _key(times.of(speed[grid])))
    worst = max([_worst(speed, given, times), given], key=lambda grid: times.of(speed[grid]).max())
    return PlacementFound(
        best, worst, float(times.of(speed[best]).max()), given_s,
        float(times.of(speed[worst]).max()), healthy_s, len(times.known),
    )  # fmt: skip


class _Times:
    """Replica times by their stages' factors; each distinct row is evaluated once."""

    def __init__(self, evaluate: Evaluate) -> None:
        self.evaluate = evaluate
        self.known: dict[tuple[float, ...], float] = {}

    def of(self, rows: FloatArray) -> FloatArray:
        keys = [tuple(row) for row in rows.tolist()]
        new = list(dict.fromkeys(key for key in keys if key not in self.known))
        if new:
            found = self.evaluate(np.array(new))
            self.known.update(zip(new, (float(v) for v in found), strict=True))
        return np.array([self.known[key] for key in keys])


def _ordered(grid: np.ndarray, speed: FloatArray, times: _Times) -> np.ndarray:
    """Return every replica's nodes in the best order over its stages."""
    return np.array([_best_order(nodes, speed, times) for nodes in grid])


def _best_order(nodes: np.ndarray, speed: FloatArray, times: _Times) -> np.ndarray:
    """Return the nodes of one replica in the best order over its stages."""
    factors = speed[nodes]
    distinct = _distinct_orders(factors)
    if distinct is not None:
        rows = np.array(distinct)
        best = rows[int(np.argmin(times.of(rows)))]
        return _matching(nodes, speed, best)
    # Too many orders: the slowest node picks the best stage that is left, then the next.
    base = np.full(len(nodes), factors.min())
    free = list(range(len(nodes)))
    place: dict[int, int] = {}
    for node in sorted(range(len(nodes)), key=lambda i: -factors[i]):
        rows = np.repeat(base[None], len(free), axis=0)
        rows[np.arange(len(free)), free] = factors[node]
        chosen = free[int(np.argmin(times.of(rows)))]
        base[chosen] = factors[node]
        place[chosen] = node
        free.remove(chosen)
    return np.array([nodes[place[s]] for s in range(len(nodes))])


def _distinct_orders(factors: FloatArray) -> list[tuple[float, ...]] | None:
    values, counts = np.unique(factors, return_counts=True)
    number = 1.0
    left = len(factors)
    for count in counts:
        for i in range(int(count)):
            number = number * (left - i) / (i + 1)
        left -= int(count)
    if number > _MOST_EXHAUSTIVE / 8 or len(factors) > 64:
        return None
    if len(values) == len(factors):
        return list(permutations(factors.tolist()))
    out: list[tuple[float, ...]] = []

    def fill(row: list[float], rest: dict[float, int]) -> None:
        if len(row) == len(factors):
            out.append(tuple(row))
            return
        for value, count in rest.items():
            if count:
                fill([*row, value], {**rest, value: count - 1})

    fill([], {float(v): int(c) for v, c in zip(values, counts, strict=True)})
    return out


def _matching(nodes: np.ndarray, speed: FloatArray, wanted: FloatArray) -> np.ndarray:
    left = sorted(nodes.tolist(), key=lambda n: speed[n])
    out = []
    for value in wanted:
        node = next(n for n in left if speed[n] == value)
        left.remove(node)
        out.append(node)
    return np.array(out)


def _key(values: FloatArray) -> tuple[float, ...]:
    return tuple(np.round(np.sort(values)[::-1], 12))


Swap = tuple[int, int, int]
"""Stage of the slowest replica, and replica and stage of the other node."""


def _exchange(grid: np.ndarray, speed: FloatArray, times: _Times) -> np.ndarray:
    """Exchange two nodes while the sorted replica times fall."""
    grid = grid.copy()
    for _ in range(_MOST_ROUNDS):
        now = times.of(speed[grid])
        slowest = int(np.argmax(now))
        swaps, rows = _swaps(speed[grid], slowest)
        if not rows:
            return grid
        found = times.of(np.array(rows)).reshape(-1, 2)
        best = (_key(now), (-1, -1, -1))
        for (s, r, t), (mine, other) in zip(swaps, found, strict=True):
            if max(mine, other) > now[slowest] + _EQUAL:
                continue
            after = now.copy()
            after[slowest] = mine
            if r != slowest:
                after[r] = other
            best = min(best, (_key(after), (s, r, t)), key=lambda item: item[0])
        s, r, t = best[1]
        if s < 0:
            return grid
        grid[slowest, s], grid[r, t] = grid[r, t], grid[slowest, s]
    return grid


def _swaps(factors: FloatArray, slowest: int) -> tuple[list[Swap], list[FloatArray]]:
    """Return the exchanges with a node of the slowest replica, and both replicas' factors after each.

    Exchanges that give the same replicas are tried once.
    """
    replicas, stages = factors.shape
    swaps: list[Swap] = []
    rows: list[FloatArray] = []
    seen: set[tuple[object, ...]] = set()
    for s in range(stages):
        for r in range(replicas):
            for t in range(stages):
                mine, other = factors[slowest, s], factors[r, t]
                if mine == other:
                    continue
                a, b = factors[slowest].copy(), factors[r].copy()
                if r == slowest:
                    a[s], a[t] = other, mine
                    b = a
                else:
                    a[s], b[t] = other, mine
                key = (tuple(a), tuple(b), tuple(factors[r]))
                if key not in seen:
                    seen.add(key)
                    swaps.append((s, r, t))
                    rows += [a, b]
    return swaps, rows


def _worst(speed: FloatArray, given: np.ndarray, times: _Times) -> np.ndarray:
    """Return the placement where the slowest nodes share a replica in the worst order found."""
    replicas, stages = given.shape
    order = np.argsort(-speed, kind="stable")
    rows = [np.roll(order[:stages], k) for k in range(stages)]
    rows += [np.roll(order[:stages][::-1], k) for k in range(stages)]
    # The slowest node in each stage, with the fastest around it.
    for s in range(stages):
        row = np.roll(order[::-1], 1)[:stages]
        row[[0, s]] = row[[s, 0]]
        rows.append(row)
    worst = rows[int(np.argmax(times.of(speed[np.array(rows)])))]
    rest = np.setdiff1d(given.ravel(), worst, assume_unique=True)
    return np.vstack([worst, rest.reshape(replicas - 1, stages)])


def place_slow_nodes(model: StepModel) -> PlacementFound | None:
    """Search the best placement of the spec's slow nodes; None where there is nothing to place.

    Only where one node holds one stage of one replica's pipeline can nodes change places one by
    one; other layouts are left alone (`why_not_placed`).
    """
    spec = model.spec
    parallel = spec.parallel
    if not spec.nodes.slow or why_not_placed(spec):
        return None
    places = parallel.dp * parallel.pp
    slowdown, number = np.ones(places), np.zeros(places, dtype=int)
    for node in range(places):
        dp, stage = _place_of(model, node)
        number[dp * parallel.pp + stage] = node
    for one in spec.nodes.slow:
        slowdown[number == one.node] = one.ratio
    found = place_nodes(slowdown.tolist(), parallel.dp, parallel.pp, model.replica_means)
    return replace(found, node=number[found.node], worst_node=number[found.worst_node])


def why_not_placed(spec: Spec) -> str:
    """Return why slow nodes of a spec are not placed, as a sentence; empty where they are, or where none is slow."""
    parallel = spec.parallel
    if not spec.nodes.slow:
        return ""
    if spec.graph is not None:
        return "no placement was searched: a graph says itself on which rank an op runs"
    if parallel.replicas != parallel.dp:
        return (
            "no placement was searched: with fsdp or ep above 1 several data-parallel ranks wait for each "
            "other in every layer, and nodes cannot be exchanged one by one"
        )
    held = parallel.tp * parallel.cp
    if held != spec.nodes.gpus_per_node:
        return (
            f"no placement was searched: it needs one stage of one replica on each node, and a stage has "
            f"tp x cp = {held} GPUs where nodes.gpus_per_node is {spec.nodes.gpus_per_node}"
        )
    return ""


def _place_of(model: StepModel, node: int) -> tuple[int, int]:
    parallel = model.spec.parallel
    if parallel.rank_order == "tp-cp-pp-dp":
        return divmod(node, parallel.pp)
    stage, dp = divmod(node, parallel.dp)
    return dp, stage
