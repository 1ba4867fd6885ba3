"""The dependency graph of one step of pipeline- and data-parallel training, read off a timeline.

The rules are those of What-if analysis (ByteDance, OSDI 2025; papers-failslow C1): compute ops of
a stage run in order; each point-to-point stream runs in order; a recv comes before its compute and
a compute before its send; parameters are gathered before the first forward of a chunk; after the
last backward come garbage collection, gradient collectives, clipping and the optimizer. Ops that
must meet (send with recv, the embedding's two stages, clipping on all stages) form groups.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from rerail.errors import EvidenceError
from rerail.tools.replay.timeline import COMPUTE, DP_COLLECTIVES, P2P, Timeline

_CLOCK_SLACK_S = 5e-5
_PEER = {"forward-send": 1, "forward-recv": -1, "backward-send": -1, "backward-recv": 1}
_OPPOSITE = {"send": "recv", "recv": "send"}


@dataclass(frozen=True)
class Group:
    """Ops (indices) that end together: at the latest start plus their own transfer time."""

    members: tuple[int, ...]
    across_dp: bool = False


@dataclass
class Graph:
    """Dependencies by op index, the groups, and the order in which groups and ops can finish.

    `order` holds (op, None) for a compute op and (-1, group) once all members may start.
    """

    before: list[list[int]]
    groups: list[Group]
    group_of: dict[int, int] = field(default_factory=dict)
    order: list[tuple[int, int | None]] = field(default_factory=list)


class _Stage:
    """The ops of one stage in the template step, by type, in the order of their start."""

    def __init__(self, timeline: Timeline, stage: int) -> None:
        self.number = stage
        self.start = timeline.start_s[:, 0, 0]
        self.end = timeline.end_s[:, 0, 0]
        mine = [i for i, op in enumerate(timeline.ops) if op.stage == stage]
        mine.sort(key=lambda i: (self.start[i], timeline.ops[i].seq_id, timeline.ops[i].optype))
        self.by_type: dict[str, list[int]] = defaultdict(list)
        for i in mine:
            self.by_type[timeline.ops[i].optype].append(i)
        self.compute = [i for i in mine if timeline.ops[i].optype in COMPUTE]

    def one(self, optype: str) -> list[int]:
        return self.by_type.get(optype, [])[:1]


def build_graph(timeline: Timeline) -> Graph:
    """Return the graph of a timeline's program.

    Raises:
        EvidenceError: sends and recvs of two stages do not pair up, or the order has a circle.
    """
    stages = [_Stage(timeline, stage) for stage in range(len(timeline.stages))]
    before: list[set[int]] = [set() for _ in timeline.ops]
    groups: list[Group] = []
    for stage in stages:
        _chain(before, stage.compute)
        for optype in P2P:
            _chain(before, stage.by_type.get(optype, []))
        _first_backward(timeline, stage, before)
    _match_p2p(timeline, stages, before, groups)
    data_parallel = any(stage.by_type.get(name) for stage in stages for name in DP_COLLECTIVES)
    for stage in stages:
        if data_parallel:
            _gather_and_scatter(timeline, stage, before)
        _tail(stage, before)
    _other_groups(stages, groups)
    graph = Graph([sorted(one) for one in before], groups)
    for number, group in enumerate(groups):
        for member in group.members:
            graph.group_of[member] = number
    _order(timeline, graph)
    return graph


def _chain(before: list[set[int]], ops: list[int]) -> None:
    for first, second in pairwise(ops):
        before[second].add(first)


def _first_backward(timeline: Timeline, stage: _Stage, before: list[set[int]]) -> None:
    # The first backward transfer is posted with the last warm-up forward but one, not at time 0.
    kinds = [timeline.ops[i].optype for i in stage.compute]
    if "backward-compute" not in kinds:
        return
    at = kinds.index("backward-compute")
    if at < 2 or kinds[at - 1] != "forward-compute" or kinds[at - 2] != "forward-compute":
        return
    for optype in ("backward-recv", "backward-send"):
        for op in stage.by_type.get(optype, []):
            if timeline.ops[op].seq_id == 0:
                before[op].add(stage.compute[at - 2])


def _match_p2p(
    timeline: Timeline, stages: list[_Stage], before: list[set[int]], groups: list[Group]
) -> None:
    """Tie each transfer to its compute op and to its peer; ends of the model have none."""
    last_chunk = max((op.gmc for op in timeline.ops), default=-1)
    ends: dict[tuple[int, str], list[int]] = {}
    for stage in stages:
        for optype in P2P:
            direction, side = optype.split("-")
            computes = _by_seq(timeline, stage.by_type.get(f"{direction}-compute", []))
            posted = _launched(stage, optype, computes)
            if not computes or not posted:
                ends[stage.number, optype] = []
                groups.extend(Group((op,)) for op in stage.by_type.get(optype, []))
                continue
            skip = len(computes) - len(posted) if side == "recv" else 0
            valid: list[int] = []
            for place, op in enumerate(posted):
                at = place + skip
                if not 0 <= at < len(computes):
                    raise EvidenceError(
                        f"{timeline.name}: stage {timeline.stages[stage.number]} has "
                        f"{len(posted)} {optype} ops for {len(computes)} {direction}-compute ops",
                        subject=timeline.name, hint="trace whole steps on every stage",
                    )  # fmt: skip
                if side == "send":
                    before[op].add(computes[at])
                else:
                    before[computes[at]].add(op)
                    if at:
                        before[op].add(computes[at - 1])
                if _has_peer(timeline, computes[at], optype, len(stages), last_chunk):
                    valid.append(op)
                else:
                    groups.append(Group((op,)))
            groups.extend(Group((op,)) for op in set(stage.by_type[optype]) - set(posted))
            ends[stage.number, optype] = valid
    _pair(timeline, ends, len(stages), groups)


def _by_seq(timeline: Timeline, ops: list[int]) -> list[int]:
    return sorted(ops, key=lambda i: timeline.ops[i].seq_id)


def _launched(stage: _Stage, optype: str, computes: list[int]) -> list[int]:
    # Profilers also record transfers at the edges of a step that were never launched.
    ops = stage.by_type.get(optype, [])
    if not computes:
        return []
    if optype.endswith("recv"):
        latest = max(stage.start[i] for i in computes) + _CLOCK_SLACK_S
        return [op for op in ops if stage.start[op] <= latest]
    earliest = min(stage.end[i] for i in computes) - _CLOCK_SLACK_S
    return [op for op in ops if stage.end[op] >= earliest]


def _has_peer(timeline: Timeline, compute: int, optype: str, stages: int, last_chunk: int) -> bool:
    op = timeline.ops[compute]
    if op.gmc < 0:
        return 0 <= op.stage + _PEER[optype] < stages
    return 0 <= op.gmc + _PEER[optype] <= last_chunk


def _pair(
    timeline: Timeline, ends: dict[tuple[int, str], list[int]], stages: int, groups: list[Group]
) -> None:
    for (stage, optype), mine in ends.items():
        if not optype.endswith("send"):
            continue
        direction, side = optype.split("-")
        peer = (stage + _PEER[optype]) % stages
        theirs = ends.get((peer, f"{direction}-{_OPPOSITE[side]}"), [])
        if len(mine) != len(theirs):
            raise EvidenceError(
                f"{timeline.name}: {len(mine)} {optype} ops of stage {timeline.stages[stage]} "
                f"meet {len(theirs)} {direction}-recv ops of stage {timeline.stages[peer]}",
                subject=timeline.name, hint="trace whole steps on every stage",
            )  # fmt: skip
        groups.extend(Group(pair) for pair in zip(mine, theirs, strict=True))


def _gather_and_scatter(timeline: Timeline, stage: _Stage, before: list[set[int]]) -> None:
    gathers = stage.by_type.get("params-all-gather", [])
    scatters = stage.by_type.get("grads-reduce-scatter", [])
    both = sorted(gathers + scatters, key=lambda i: stage.start[i])
    _chain(before, both)
    ready: set[int] = set()
    for op in reversed(_by_seq(timeline, gathers)):
        chunk = timeline.ops[op].mc
        forwards = [i for i in stage.by_type["forward-compute"] if timeline.ops[i].mc == chunk]
        if chunk not in ready and forwards:
            before[min(forwards, key=lambda i: stage.start[i])].add(op)
            ready.add(chunk)
    if not stage.one("separate-grads-all-reduce"):
        return
    # Gradients are reduced while the backward pass of other chunks still runs.
    done: set[int] = set()
    for op in _by_seq(timeline, scatters):
        chunk = timeline.ops[op].mc
        backwards = [i for i in stage.by_type["backward-compute"] if timeline.ops[i].mc == chunk]
        if chunk not in done and backwards:
            before[op].add(max(backwards, key=lambda i: stage.end[i]))
            done.add(chunk)


def _tail(stage: _Stage, before: list[set[int]]) -> None:
    if not stage.compute:
        return
    last = max(stage.compute, key=lambda i: stage.end[i])
    collect = stage.one("gc")
    for op in collect:
        before[op].add(last)
    scatters = stage.by_type.get("grads-reduce-scatter", [])
    separate = stage.one("separate-grads-all-reduce")
    ends = (["optimizer-clip-main-grad"], ["optimizer"])
    chain = stage.one("layernorm-grads-all-reduce") + stage.one("embedding-grads-all-reduce")
    chain += separate if separate else scatters
    chain += [op for names in ends for name in names for op in stage.one(name)]
    if not chain:
        return
    before[chain[0]].update(collect or [last])
    if separate and scatters and chain[0] != scatters[-1]:
        before[chain[0]].add(scatters[-1])
    _chain(before, chain)


def _other_groups(stages: list[_Stage], groups: list[Group]) -> None:
    for stage in stages:
        for optype in DP_COLLECTIVES:
            groups.extend(Group((op,), across_dp=True) for op in stage.by_type.get(optype, []))
    for optype, across in (
        ("embedding-grads-all-reduce", False),
        ("optimizer-clip-main-grad", True),
    ):
        members = tuple(op for stage in stages for op in stage.one(optype))
        if members:
            groups.append(Group(members, across_dp=across))


def _order(timeline: Timeline, graph: Graph) -> None:
    """Sort groups and lone ops topologically (Kahn)."""
    nodes: dict[int, int] = {}
    for op in range(len(timeline.ops)):
        nodes[op] = graph.group_of.get(op, -1 - op)
    waits: dict[int, set[int]] = {node: set() for node in nodes.values()}
    after: dict[int, set[int]] = defaultdict(set)
    for op, firsts in enumerate(graph.before):
        for first in firsts:
            if nodes[first] != nodes[op]:
                waits[nodes[op]].add(nodes[first])
                after[nodes[first]].add(nodes[op])
    left = {node: len(ones) for node, ones in waits.items()}
    queue = deque(sorted(node for node, count in left.items() if count == 0))
    done = 0
    while queue:
        node = queue.popleft()
        done += 1
        graph.order.append((-1, node) if node >= 0 else (-1 - node, None))
        for follower in sorted(after[node]):
            left[follower] -= 1
            if left[follower] == 0:
                queue.append(follower)
    if done != len(left):
        stuck = next(node for node, count in left.items() if count > 0)
        at = timeline.ops[graph.groups[stuck].members[0] if stuck >= 0 else -1 - stuck]
        raise EvidenceError(
            f"{timeline.name}: the order of ops has a circle at {at.optype} {at.seq_id} of stage "
            f"{timeline.stages[at.stage]}",
            subject=timeline.name, hint="are the clocks of the workers aligned within a step?",
        )  # fmt: skip


def comm_ops(graph: Graph) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return for each op whether it waits for others."""
    mask = np.zeros(len(graph.before), dtype=bool)
    mask[list(graph.group_of)] = True
    return mask
