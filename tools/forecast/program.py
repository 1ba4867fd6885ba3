"""What runs in a step and what waits for what: a graph of ops in an order in which they can run.

`start(v) = max over predecessors of end(u)`, `end(v) = start(v) + X_v` (PRISM, arXiv 2510.15596v2). A
collective is one op that waits for all its ranks, so that they share its one draw.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from rerail.errors import ConfigError
from rerail.tools.forecast.schedule import Pass, stage_order, zero_bubble_order


@dataclass(frozen=True, slots=True)
class Node:
    """One op: the key of its duration, where it runs, the indices of the ops that it waits for.

    `place` is a pipeline stage, or a rank of an explicit graph; -1 for an op of several ranks.
    `position` says where in the step it lies: warm-up, steady or cool-down.
    """

    duration: str
    place: int
    before: tuple[int, ...]
    name: str = ""
    position: str = "steady"


@dataclass(frozen=True)
class Program:
    """The ops of one replica's step, every predecessor before its successors."""

    nodes: tuple[Node, ...]

    @cached_property
    def sinks(self) -> tuple[int, ...]:
        """Return the ops that no other op waits for."""
        waited = {u for node in self.nodes for u in node.before}
        return tuple(v for v in range(len(self.nodes)) if v not in waited)

    @cached_property
    def last_use(self) -> tuple[int, ...]:
        """Return for each op the last op that waits for it, or the number of ops for a sink."""
        last = [len(self.nodes)] * len(self.nodes)
        for v, node in enumerate(self.nodes):
            for u in node.before:
                last[u] = v
        return tuple(last)


def pipeline_program(
    stages: int, micro_batches: int, kind: str = "1f1b", chunks: int = 1, transfer: bool = True
) -> Program:
    """Return the program of a pipeline; with `transfer`, sending between stages is an op.

    Durations are called forward, backward, weights and transfer; with zero-bubble, backward is the
    gradient of the inputs alone.

    Raises:
        ValueError: the micro-batches do not fit the interleaved schedule.
    """
    orders = [
        zero_bubble_order(stage, stages, micro_batches)
        if kind == "zero_bubble"
        else stage_order(stage, stages, micro_batches, chunks)
        for stage in range(stages)
    ]
    places = [_positions(order) for order in orders]
    nodes: list[Node] = []
    number: dict[tuple[int, Pass], int] = {}
    sent: dict[tuple[int, Pass], int] = {}
    previous: list[int | None] = [None] * stages
    at = [0] * stages
    left = sum(len(order) for order in orders)
    while left:
        before_round = left
        for stage in range(stages):
            while at[stage] < len(orders[stage]):
                one = orders[stage][at[stage]]
                needed = _input(stage, one, stages, chunks)
                if needed is not None and needed not in number:
                    break
                before = [] if previous[stage] is None else [previous[stage]]
                if needed is not None:
                    if needed[0] != stage and transfer and needed not in sent:
                        sent[needed] = len(nodes)
                        nodes.append(
                            Node("transfer", needed[0], (number[needed],), "transfer",
                                 places[stage][at[stage]])
                        )  # fmt: skip
                    before.append(sent.get(needed, number[needed]))
                number[stage, one] = len(nodes)
                previous[stage] = len(nodes)
                key = "forward" if one.forward else "weights" if one.weights else "backward"
                nodes.append(
                    Node(key, stage, tuple(u for u in before if u is not None),
                         f"{key} {one.micro_batch}", places[stage][at[stage]])
                )  # fmt: skip
                at[stage] += 1
                left -= 1
        if left == before_round:
            raise ValueError("the schedule cannot run: stages wait for each other")
    return Program(tuple(nodes))


def _positions(order: Sequence[Pass]) -> list[str]:
    first_back = next((i for i, one in enumerate(order) if not one.forward), len(order))
    last_forward = max((i for i, one in enumerate(order) if one.forward), default=-1)
    return [
        "warm-up" if i < first_back - 1 else "cool-down" if i > last_forward + 1 else "steady"
        for i in range(len(order))
    ]


def _input(stage: int, one: Pass, stages: int, chunks: int) -> tuple[int, Pass] | None:
    """Return the stage and pass whose result this pass needs, or None at the model's beginning."""
    if one.weights:
        return None
    if one.forward:
        if stage == 0 and one.chunk == 0:
            return None
        chunk = one.chunk if stage else one.chunk - 1
        return (stage - 1) % stages, Pass(True, chunk, one.micro_batch)
    if stage == stages - 1 and one.chunk == chunks - 1:
        return stage, Pass(True, one.chunk, one.micro_batch)
    chunk = one.chunk if stage < stages - 1 else one.chunk + 1
    return (stage + 1) % stages, Pass(False, chunk, one.micro_batch)


def graph_program(ops: Mapping[str, tuple[str, int, Sequence[str]]]) -> Program:
    """Return the program of an explicit graph: op name to (duration key, place, names it waits for).

    Raises:
        ConfigError: an op waits for one that is not there, or ops wait for each other in a circle;
            the message names the key.
    """
    for name, (_, _, after) in ops.items():
        for other in after:
            if other not in ops:
                raise ConfigError(
                    f"graph.{name}.after: there is no op {other!r}",
                    subject=f"graph.{name}.after",
                    hint=f"ops of the graph: {', '.join(list(ops)[:8])}",
                )
    number: dict[str, int] = {}
    nodes: list[Node] = []
    waiting = {name: set(after) for name, (_, _, after) in ops.items()}
    following: dict[str, list[str]] = {name: [] for name in ops}
    for name, (_, _, after) in ops.items():
        for other in set(after):
            following[other].append(name)
    ready = [name for name, after in waiting.items() if not after]
    while ready:
        name = ready.pop(0)
        key, place, after = ops[name]
        number[name] = len(nodes)
        nodes.append(Node(key, place, tuple(number[other] for other in after), name))
        for other in following[name]:
            waiting[other].discard(name)
            if not waiting[other]:
                ready.append(other)
    if len(nodes) < len(ops):
        stuck = sorted(name for name in ops if name not in number)
        circle = _circle(stuck[0], {n: sorted(waiting[n]) for n in stuck})
        raise ConfigError(
            f"graph.{circle[0]}.after: the ops {' -> '.join(circle)} wait for each other",
            subject=f"graph.{circle[0]}.after",
            hint="take one of these out of `after`",
        )
    return Program(tuple(nodes))


def _circle(start: str, waits_for: Mapping[str, Sequence[str]]) -> list[str]:
    seen: list[str] = []
    name = start
    while name not in seen:
        seen.append(name)
        name = waits_for[name][0]
    return [*seen[seen.index(name) :], name]
