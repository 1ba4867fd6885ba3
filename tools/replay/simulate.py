"""Replay a step's graph with changed op times: arrays over variants, steps and data-parallel ranks.

All steps and all variants are replayed in one pass over the ops, so that the cost is one numpy
call per dependency and not one per op, rank and step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rerail.domain.series import BoolArray, FloatArray
from rerail.tools.replay.dependencies import Graph, comm_ops
from rerail.tools.replay.timeline import Timeline

_NEGLIGIBLE_S = 1e-2
_BATCH_BYTES = 128 << 20


@dataclass(frozen=True, eq=False)
class Times:
    """What a replay needs, each of the shape (ops, steps, dp ranks), in seconds.

    `work_s` is the duration of a compute op, and for a transfer or collective its own time once
    all participants have started. `launch_s` is the delay after the last dependency ended.
    """

    work_s: FloatArray
    launch_s: FloatArray


def measure(timeline: Timeline, graph: Graph) -> Times:
    """Split the measured times into work and launch delay.

    A transfer that seems to end up to 10 ms before its peer starts is clock error and kept as it
    is; beyond that it counts as 0 (papers-failslow C1).
    """
    start, end = timeline.start_s, timeline.end_s
    work = end - start
    for group in graph.groups:
        latest = start[list(group.members)].max(axis=0)
        if group.across_dp:
            latest = latest.max(axis=-1, keepdims=True)
        for member in group.members:
            transfer = end[member] - latest
            work[member] = np.where(transfer <= -_NEGLIGIBLE_S, 0.0, transfer)
    launch = np.empty_like(start)
    for op, firsts in enumerate(graph.before):
        launch[op] = start[op] - (end[firsts].max(axis=0) if firsts else 0.0)
    launch[launch <= -_NEGLIGIBLE_S] = 0.0
    return Times(work, launch)


def step_times(
    timeline: Timeline, graph: Graph, work_s: FloatArray, launch_s: FloatArray | None = None
) -> FloatArray:
    """Return the step times, shape (steps,), of one replay; without `launch_s` there is no delay."""
    everything = np.ones((1, len(timeline.ops)), dtype=bool)
    dp_all = np.ones((1, len(timeline.dp_ranks)), dtype=bool)
    times: FloatArray = replay_variants(
        timeline, graph, work_s, work_s, everything, dp_all, launch_s
    )[0]
    return times


def replay_variants(
    timeline: Timeline,
    graph: Graph,
    base_s: FloatArray,
    other_s: FloatArray,
    ops: BoolArray,
    dp_ranks: BoolArray,
    launch_s: FloatArray | None = None,
) -> FloatArray:
    """Replay many variants at once: in variant v, `other_s` holds where ops[v] and dp_ranks[v] do.

    Shapes: `base_s`, `other_s` (ops, steps, dp), `ops` (variants, ops), `dp_ranks` (variants, dp).
    Returns step times of the shape (variants, steps), in seconds.
    """
    steps, dp = len(timeline.steps), len(timeline.dp_ranks)
    out = np.empty((len(ops), steps))
    per_step = len(timeline.ops) * dp * 8
    wide = max(1, _BATCH_BYTES // per_step)
    step_batch = max(1, min(steps, wide))
    variant_batch = max(1, wide // step_batch)
    for v in range(0, len(ops), variant_batch):
        for s in range(0, steps, step_batch):
            part = np.s_[:, s : s + step_batch]
            out[v : v + variant_batch, s : s + step_batch] = _replay(
                timeline, graph, base_s[part], other_s[part], ops[v : v + variant_batch],
                dp_ranks[v : v + variant_batch], None if launch_s is None else launch_s[part],
            )  # fmt: skip
    return out


def _replay(
    timeline: Timeline,
    graph: Graph,
    base: FloatArray,
    other: FloatArray,
    ops: BoolArray,
    dp_ranks: BoolArray,
    launch: FloatArray | None,
) -> FloatArray:
    shape = (len(ops), base.shape[1], base.shape[2])
    end = np.zeros((len(timeline.ops), *shape))
    whole: BoolArray = np.asarray(ops.all(axis=0)) & bool(dp_ranks.all())
    mixed: BoolArray = np.asarray(ops.any(axis=0)) & ~whole

    def work(op: int) -> FloatArray:
        if mixed[op]:
            use = (ops[:, op, None] & dp_ranks)[:, None, :]
            chosen: FloatArray = np.where(use, other[op], base[op])
        else:
            chosen = other[op] if whole[op] else base[op]
        return chosen

    def start(op: int) -> FloatArray:
        firsts = graph.before[op]
        ready: FloatArray = end[firsts[0]] if firsts else np.zeros(shape)
        for first in firsts[1:]:
            ready = np.maximum(ready, end[first])
        return ready if launch is None else ready + launch[op]

    for op, number in graph.order:
        if number is None:
            np.add(start(op), work(op), out=end[op])
            continue
        group = graph.groups[number]
        latest = start(group.members[0])
        for member in group.members[1:]:
            latest = np.maximum(latest, start(member))
        if group.across_dp:
            latest = latest.max(axis=-1, keepdims=True)
        for member in group.members:
            np.add(latest, work(member), out=end[member])
    last = [i for i, op in enumerate(timeline.ops) if op.optype == "optimizer"]
    finished: FloatArray = (end[last] if last else end).max(axis=(0, 3))
    return finished


def ideal_times(timeline: Timeline, graph: Graph, times: Times) -> FloatArray:
    """Return the straggler-free times: each op takes what its type takes on the whole job.

    Compute ops take the mean and communication the median over stages, steps and dp ranks
    (What-if analysis, OSDI 2025, section 3.2).
    """
    kinds = np.array([op.optype for op in timeline.ops])
    meets = comm_ops(graph)
    ideal = np.empty_like(times.work_s)
    for kind in np.unique(kinds):
        mine = kinds == kind
        values = times.work_s[mine]
        by_median = bool(meets[mine].any()) or kind.endswith(("all-reduce", "clip-main-grad"))
        ideal[mine] = np.median(values) if by_median else values.mean()
    return ideal
