"""Build a spec from what was measured: an op-level timeline, or spans of steps.

Structure comes from the order of the ops, durations become pools per signature (op, stage and rank;
with eight steps or more also its number in the step), so that what persists on a rank stays on it.
Waiting is taken out of communication: a collective lasts from its last rank's arrival, and a
point-to-point transfer that still waited is cut by Otsu's threshold.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rerail.domain.series import FloatArray
from rerail.errors import EvidenceError
from rerail.tools.forecast.congestion import congestion
from rerail.tools.forecast.fit import LEAST_TO_FIT, otsu_split
from rerail.tools.forecast.spec import Effects, GraphOp, Nodes, Pool, Spec

if TYPE_CHECKING:
    from rerail.tools.replay.dependencies import Graph
    from rerail.tools.replay.simulate import Times
    from rerail.tools.replay.timeline import Timeline

Collective = tuple[str, float, float]
Step = tuple[float, float, list[Collective]]
"""Begin, end and (group, begin, end) of the collectives of one step on one rank, in seconds."""
_LAUNCH_S = 5e-5
TRANSFER = "transfer "
"""How the key of a point-to-point transfer begins."""
_TOGETHER_S = 1e-6


def spec_from_spans(steps: Mapping[int, Sequence[Step]], name: str = "trace") -> Spec:
    """Build a spec from the steps of all ranks.

    A rank works between its collectives; each collective waits for its ranks and then takes what it
    took on the rank that came last. One that usually begins while another runs does not wait for that
    one. The k-th piece of work of a rank has a pool of its own. Where communication stays slow for a
    while, the steps are parted into calm and congested ones (`congestion`).

    Raises:
        EvidenceError: the ranks or steps have no common sequence of collectives.
    """
    ranks = sorted(steps)
    count = min(len(steps[rank]) for rank in ranks)
    usual = _usual_sequences(steps, ranks, count)
    kept = [
        i
        for i in range(count)
        if all([key for key, _, _ in steps[rank][i][2]] == usual[rank] for rank in ranks)
    ]
    if not kept:
        raise EvidenceError(
            f"{name}: no step has the same collectives as the others on all ranks",
            subject=name, hint="profile whole steps on every rank of one run",
        )  # fmt: skip
    pools: dict[str, Pool] = {}
    graph: dict[str, GraphOp] = {}
    number: dict[int, dict[str, int]] = {rank: defaultdict(int) for rank in ranks}
    members: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for rank in ranks:
        for k, key in enumerate(usual[rank]):
            members[key, number[rank][key]].append((rank, k))
            number[rank][key] += 1
    node_of = {at: f"{key} {n}" for (key, n), all_of in members.items() for at in all_of}
    for rank in ranks:
        own = [steps[rank][i] for i in kept]
        for k, (earlier, ended) in enumerate(_anchors(own)):
            work = f"rank {rank} work {k}"
            pools[work] = _pool(_gaps(own, k, earlier, ended), "compute")
            before = node_of[rank, earlier] if ended else f"rank {rank} work {earlier}"
            graph[work] = GraphOp(pool=work, rank=rank, after=() if earlier < 0 else (before,))
    lengths = {
        (key, n): np.array([min(_length(steps[rank][i], k) for rank, k in all_of) for i in kept])
        for (key, n), all_of in members.items()
    }
    slow = congestion(
        np.array([one for at, one in lengths.items() if not at[0].startswith(TRANSFER)])
    )
    for (key, n), all_of in members.items():
        node, transfer, took = f"{key} {n}", key.startswith(TRANSFER), lengths[key, n]
        if slow is not None:
            took = np.where(slow.steps, took / slow.regime.scale, took)
        if transfer:
            took = took[took <= otsu_split(took)]
        pools[node] = _pool(took, "transfer" if transfer else "collective", group="dp")
        graph[node] = GraphOp(pool=node, after=tuple(f"rank {rank} work {k}" for rank, k in all_of))
    effects = Effects(regime=None if slow is None else slow.regime)
    return Spec(name=name, pools=pools, graph=graph, nodes=Nodes(gpus_per_node=1), effects=effects)


def _usual_sequences(
    steps: Mapping[int, Sequence[Step]], ranks: Sequence[int], count: int
) -> dict[int, list[str]]:
    return {
        rank: list(
            Counter(
                tuple(key for key, _, _ in steps[rank][i][2]) for i in range(count)
            ).most_common(1)[0][0]
        )
        for rank in ranks
    }


def _anchors(steps: Sequence[Step]) -> list[tuple[int, bool]]:
    """Return for each collective, and for the end of the step, the last event before it.

    (number of an earlier collective, True where its end and False where its beginning came last);
    (-1, False) for the step's begin. What usually comes last over the steps decides.
    """
    begin = np.median([[c[1] - step[0] for c in step[2]] for step in steps], axis=0)
    end = np.median([[c[2] - step[0] for c in step[2]] for step in steps], axis=0)
    out = []
    for k in range(len(begin) + 1):
        at = begin[k] if k < len(begin) else np.inf
        latest, found = (begin[k - 1], (k - 1, False)) if k else (0.0, (-1, False))
        ended = np.where(end[:k] <= at + _TOGETHER_S, end[:k], -np.inf)
        if k and ended.max() >= latest:
            found = (int(ended.argmax()), True)
        out.append(found)
    return out


def _gaps(steps: Sequence[Step], k: int, earlier: int, ended: bool) -> FloatArray:
    """Return the seconds of work between the event before collective `k` and its beginning [steps]."""
    out = []
    for begin, end, collectives in steps:
        left = begin
        if earlier >= 0:
            _, began, left = collectives[earlier]
            left = left if ended else began
        right = end if k == len(collectives) else collectives[k][1]
        out.append(max(right - left, 0.0))
    return np.array(out)


def _length(step: Step, k: int) -> float:
    return step[2][k][2] - step[2][k][1]


def _pool(samples: FloatArray, kernel: str, group: str | None = None) -> Pool:
    return Pool.model_validate(
        {
            "distribution": "fit",
            "samples_s": tuple(float(value) for value in np.maximum(samples.ravel(), 0.0)),
            "kernel": kernel,
            "group": group,
        }
    )


def spec_from_timeline(path: Path, steps: Sequence[int] | None = None) -> tuple[Spec, FloatArray]:
    """Build a spec from an op-level timeline and return it with the measured step times, in seconds.

    `steps` picks rows of the timeline's steps for the pools; all by default.

    Raises:
        EvidenceError: the file is no timeline (see `rerail.tools.replay.timeline`).
    """
    from rerail.tools.replay.dependencies import build_graph
    from rerail.tools.replay.simulate import measure
    from rerail.tools.replay.timeline import read_timeline

    timeline = read_timeline(path)
    graph = build_graph(timeline)
    made = _FromTimeline(timeline, graph, measure(timeline, graph), steps)
    made.ops()
    made.groups()
    return made.spec(str(path)), timeline.step_time_s()


class _FromTimeline:
    """Turns every op of every replica into an op of a graph, with its durations as a pool."""

    def __init__(
        self, timeline: Timeline, graph: Graph, times: Times, steps: Sequence[int] | None
    ) -> None:
        self.timeline, self.graph, self.times = timeline, graph, times
        self.use = list(range(len(timeline.steps)) if steps is None else steps)
        self.dp = len(timeline.dp_ranks)
        self.pooled: dict[str, list[FloatArray]] = defaultdict(list)
        self.kernels: dict[str, str] = {}
        self.made: dict[str, GraphOp] = {}
        self.waits: dict[str, list[str]] = defaultdict(list)

    def node(self, op: int, d: int) -> str:
        number = self.graph.group_of.get(op)
        if number is None:
            return f"{op}.{d}"
        return f"g{number}" if self.graph.groups[number].across_dp else f"g{number}.{d}"

    def before(self, op: int, d: int) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.node(u, d) for u in self.graph.before[op]))

    def ops(self) -> None:
        """Add compute ops; for members of groups, add their launch where it takes time."""
        for op, one in enumerate(self.timeline.ops):
            for d in range(self.dp):
                rank = int(self.timeline.ranks[d, one.stage])
                mine = f"{one.optype} stage {one.stage} dp {d}"
                if len(self.use) >= LEAST_TO_FIT:
                    mine = f"{mine} op {op}"  # micro-batches differ, in every step alike
                work = self.times.work_s[op, self.use, d]
                launch = np.maximum(self.times.launch_s[op, self.use, d], 0.0)
                after = self.before(op, d)
                if op not in self.graph.group_of:
                    self.pooled[mine].append(work + launch)
                    self.made[self.node(op, d)] = GraphOp(pool=mine, rank=rank, after=after)
                elif float(np.median(launch)) > _LAUNCH_S:
                    begin, pool = f"launch {op}.{d}", f"launch of {mine}"
                    self.pooled[pool].append(launch)
                    self.made[begin] = GraphOp(pool=pool, rank=rank, after=after)
                    self.waits[self.node(op, d)].append(begin)
                else:
                    self.waits[self.node(op, d)] += after

    def groups(self) -> None:
        """Add collectives and transfers: one op with one draw for all members."""
        for number, group in enumerate(self.graph.groups):
            first = self.timeline.ops[group.members[0]]
            all_work = self.times.work_s[list(group.members)][:, self.use]
            for d in range(1 if group.across_dp else self.dp):
                across = group.across_dp
                name = f"g{number}" if across else f"g{number}.{d}"
                pool = f"{first.optype} of stage {first.stage}{'' if across else f' dp {d}'}"
                work = all_work.max(axis=(0, 2)) if across else all_work[:, :, d].max(axis=0)
                self.pooled[pool].append(np.maximum(work, 0.0))
                self.kernels[pool] = first.optype
                after = tuple(dict.fromkeys(self.waits[name]))
                self.made[name] = GraphOp(pool=pool, after=after)

    def spec(self, name: str) -> Spec:
        pools = {}
        for pool, parts in self.pooled.items():
            values = np.concatenate(parts)
            if pool in self.kernels and ("send" in pool or "recv" in pool):
                values = values[values <= otsu_split(values)]
            kernel = self.kernels.get(pool, pool.split(" stage")[0])
            pools[pool] = _pool(values, kernel, "dp" if pool in self.kernels else None)
        nodes = Nodes(gpus_per_node=max(1, int(self.timeline.ranks.size)))
        return Spec(name=name, pools=pools, graph=self.made, nodes=nodes)
