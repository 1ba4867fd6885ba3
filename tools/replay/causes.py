"""Why a replayed run is slow: a worker, a link, the stage split, or uneven sequence lengths.

Compute times are split into stage level x worker factor x what varies from micro-batch to
micro-batch, and each part is priced by a replay without it. Only a worker that is slower than the
other replicas of *its own stage*, step after step, or a link slower than its like, is a suspect
of hardware: a stage that is long on all replicas is the model's partition, and times that vary
with the micro-batch in the same way forward and backward are its data (papers-failslow C1; the
forward-backward correlation is the test of What-if analysis, OSDI 2025, section 5.3).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rerail.domain.series import FloatArray
from rerail.tools.durations import seconds
from rerail.tools.localize.findings import Finding, Localization, LocalizeOutcome, outcome_of
from rerail.tools.replay.timeline import COMPUTE, DP_COLLECTIVES, P2P, Timeline
from rerail.tools.replay.whatif import NOT_WORTH_SPLITTING, Pricing, price

WORKER_RATIO = 1.05
LINK_RATIO = 1.5
END_STAGE_RATIO = 3.0
STEADY_SHARE = 0.8
DATA_CORRELATION = 0.8
_VARIES = 0.05
_WORTH_STEP = 0.01
_WORTH_LOST = 0.1
_MOST = 12
_SLOW = 1.1
_LEAST_TRANSFER_S = 1e-4
_BACKWARD_LONGER = 1.3


@dataclass(frozen=True, eq=False)
class Levels:
    """Compute times as stage level x worker factor x rest; seconds and ratios.

    `level[kind][stage]`, `factor[kind][stage, dp]`, `steady[stage, dp]`: the share of steps in
    which a worker is slower than its peers by `WORKER_RATIO`. `rest` has the shape of the work.
    """

    level: dict[str, FloatArray]
    factor: dict[str, FloatArray]
    steady: FloatArray
    rest: FloatArray


@dataclass(frozen=True, eq=False)
class _Suspect:
    """A finding not priced yet, and the factor on the work times that takes it away."""

    finding: Finding
    relief: FloatArray


def explain(pricing: Pricing) -> list[Finding]:
    """Return the causes worth naming, the most costly first; none where the run is not slow.

    Each cause is priced after those before it were taken away, so that the prices add up.
    """
    found: list[Finding] = []
    if pricing.slowdown >= NOT_WORTH_SPLITTING:
        levels = split_levels(pricing)
        found = _in_order(
            pricing,
            _workers(pricing, levels)
            + _partition(pricing, levels)
            + _variation(pricing, levels)
            + _links(pricing)
            + _groups(pricing),
        )
    return sorted(found + _launch(pricing), key=lambda one: -one.lost_per_step_s)


def localize_timeline(timeline: Timeline) -> tuple[Localization, Pricing]:
    """Replay a timeline and return its findings with the slowdowns of What-if analysis.

    Raises:
        EvidenceError: the timeline's ops do not form a training step.
    """
    pricing = price(timeline)
    findings = explain(pricing)
    outcome = outcome_of(findings)
    if not findings and pricing.slowdown >= _SLOW:
        outcome = LocalizeOutcome.UNEXPLAINED
    missing = []
    if timeline.dropped_steps:
        missing.append(f"{len(timeline.dropped_steps)} steps lack ops of some worker, left out")
    if len(timeline.dp_ranks) < 2:
        missing.append("one replica only: a slow device cannot be told from an uneven split")
    details = {
        "steps": len(timeline.steps),
        "step_time_s": {
            "measured": pricing.measured_step_s,
            "without_delays": pricing.actual_step_s,
            "ideal": pricing.ideal_step_s,
        },
        "slowdown": pricing.slowdown,
        "launch_slowdown": pricing.launch_slowdown,
        "by_stage": {str(k): v for k, v in pricing.by_stage.items()},
        "by_dp_rank": {str(k): v for k, v in pricing.by_dp_rank.items()},
        "by_optype": pricing.by_optype,
        "top_workers": pricing.top_workers,
        "m_w": pricing.m_w,
        "m_s": pricing.m_s,
    }
    return Localization(timeline.name, outcome, findings, missing, details), pricing


def _in_order(pricing: Pricing, suspects: list[_Suspect]) -> list[Finding]:
    worth = max(_WORTH_STEP * pricing.actual_step_s, _WORTH_LOST * pricing.lost_per_step_s)
    now, work = pricing.actual_step_s, pricing.times.work_s
    out: list[Finding] = []
    left = _most_suspect(pricing, suspects)
    while left:
        saved = [now - pricing.without(work * one.relief) for one in left]
        best = int(np.argmax(saved))
        if saved[best] < worth:
            break
        chosen = left.pop(best)
        out.append(
            replace(
                chosen.finding,
                lost_per_step_s=saved[best],
                lost_s=saved[best] * len(pricing.timeline.steps),
            )
        )
        now -= saved[best]
        work = work * chosen.relief
    return out


def _most_suspect(pricing: Pricing, suspects: list[_Suspect]) -> list[_Suspect]:
    """Keep the replays affordable: the suspects with the most work to lose, at most `_MOST`."""
    if len(suspects) <= _MOST:
        return list(suspects)
    work = pricing.times.work_s
    excess = [float((work * np.abs(1 - one.relief)).sum()) for one in suspects]
    return [suspects[i] for i in np.argsort(excess)[::-1][:_MOST]]


def _of(pricing: Pricing, optype: str, stage: int) -> NDArray[np.int64]:
    ops = pricing.timeline.ops
    return np.array(
        [i for i, op in enumerate(ops) if op.optype == optype and op.stage == stage], dtype=np.int64
    )


def lower_median(values: FloatArray, axis: int = -1) -> FloatArray:
    """Return the middle value, and of two middle values the lower: with two, the faster one."""
    ordered = np.sort(values, axis=axis)
    middle: FloatArray = np.take(ordered, (values.shape[axis] - 1) // 2, axis=axis)
    return middle


def split_levels(pricing: Pricing) -> Levels:
    """Split the compute times of a timeline, see `Levels`."""
    timeline, work = pricing.timeline, pricing.times.work_s
    stages, dp = len(timeline.stages), len(timeline.dp_ranks)
    level: dict[str, FloatArray] = {}
    factor: dict[str, FloatArray] = {}
    rest = np.ones_like(work)
    slower = np.zeros((stages, len(timeline.steps), dp), dtype=bool)
    total = np.zeros((stages, len(timeline.steps), dp))
    for kind in COMPUTE:
        level[kind] = np.zeros(stages)
        factor[kind] = np.ones((stages, dp))
        for stage in range(stages):
            mine = _of(pricing, kind, stage)
            if not len(mine):
                continue
            per_step = work[mine].mean(axis=0)
            total[stage] += work[mine].sum(axis=0)
            per_worker = np.median(per_step, axis=0)
            level[kind][stage] = lower_median(per_worker)
            factor[kind][stage] = per_worker / max(level[kind][stage], 1e-12)
            typical = level[kind][stage] * factor[kind][stage]
            rest[mine] = work[mine] / np.maximum(typical, 1e-12)
    if dp > 1:
        reference = lower_median(total)[..., None]
        slower = np.asarray(total > reference * WORKER_RATIO)
    return Levels(level, factor, slower.mean(axis=1), rest)


def _suspect(relief: FloatArray, **rest: Any) -> _Suspect:
    return _Suspect(Finding(lost_per_step_s=0.0, lost_s=0.0, **rest), relief)


def _unchanged(pricing: Pricing) -> FloatArray:
    return np.ones_like(pricing.times.work_s)


def worker_step_ratio(pricing: Pricing) -> FloatArray:
    """Return each worker's compute time over that of the typical replica of its stage.

    Shape (stages x dp, steps), stages outermost; with one replica, over its own median step.
    """
    timeline, work = pricing.timeline, pricing.times.work_s
    rows = []
    for stage in range(len(timeline.stages)):
        mine = np.concatenate([_of(pricing, kind, stage) for kind in COMPUTE])
        total = work[mine].sum(axis=0)
        alone = len(timeline.dp_ranks) < 2
        reference = np.median(total) if alone else lower_median(total)[:, None]
        rows.append((total / np.maximum(reference, 1e-12)).T)
    return np.concatenate(rows)


def _workers(pricing: Pricing, levels: Levels) -> list[_Suspect]:
    """Name the workers slower than the other replicas of their stage, in most steps."""
    timeline = pricing.timeline
    if len(timeline.dp_ranks) < 2:
        return []
    worst = np.maximum(levels.factor[COMPUTE[0]], levels.factor[COMPUTE[1]])
    out = []
    for stage, dp in np.argwhere((worst >= WORKER_RATIO) & (levels.steady >= STEADY_SHARE)):
        relief = _unchanged(pricing)
        slow = {kind: float(levels.factor[kind][stage, dp]) for kind in COMPUTE}
        for kind in COMPUTE:
            relief[_of(pricing, kind, stage), :, dp] /= max(1.0, slow[kind])
        rank = int(timeline.ranks[dp, stage])
        host = _constant_delay_s(levels, stage, dp)
        more = (
            f"; it adds {seconds(host)} to each op, long or short, as a busy host does"
            if host is not None
            else ""
        )
        out.append(
            _suspect(
                relief, kind="slow_worker", function=max(slow, key=lambda name: slow[name]),
                workers=(rank,), dimension="beta", ratio=max(slow.values()), layer="infrastructure",
                failure_type="slow_gpu" if host is None else "slow_host_cpu",
                where=(
                    ("dp_rank", int(timeline.dp_ranks[dp])),
                    ("stage", int(timeline.stages[stage])),
                ),
                reason=(
                    f"rank {rank} (dp_rank {timeline.dp_ranks[dp]}, stage {timeline.stages[stage]}) "
                    f"computes {slow[COMPUTE[0]]:.2f}x forward and {slow[COMPUTE[1]]:.2f}x backward "
                    f"of what the other replicas of its stage take, in "
                    f"{levels.steady[stage, dp]:.0%} of the steps{more}"
                ),
            )
        )  # fmt: skip
    return out


def _constant_delay_s(levels: Levels, stage: int, dp: int) -> float | None:
    """Return the seconds added to every op alike, or None where the slowdown is a ratio.

    A slow device stretches the long backward more than the short forward; a launch that is late
    costs both the same. Nothing can be said where both take the same time.
    """
    forward, backward = (float(levels.level[kind][stage]) for kind in COMPUTE)
    if forward <= 0 or backward < _BACKWARD_LONGER * forward:
        return None
    extra = [float(levels.level[k][stage] * (levels.factor[k][stage, dp] - 1)) for k in COMPUTE]
    if extra[0] <= 0 or not 0.8 <= extra[1] / extra[0] <= 1.2:
        return None
    return sum(extra) / 2


def _partition(pricing: Pricing, levels: Levels) -> list[_Suspect]:
    """Name the stages that are long on all replicas: the layers are not split evenly."""
    timeline = pricing.timeline
    if len(timeline.stages) < 2:
        return []
    relief = _unchanged(pricing)
    whole = sum((levels.level[kind] for kind in COMPUTE), start=np.zeros(len(timeline.stages)))
    for kind in COMPUTE:
        mean = float(levels.level[kind].mean())
        for stage in range(len(timeline.stages)):
            relief[_of(pricing, kind, stage)] *= mean / max(levels.level[kind][stage], 1e-12)
    others = np.array([np.delete(whole, i).mean() for i in range(len(whole))])
    longest = int(np.argmax(whole / np.maximum(others, 1e-12)))
    ratio = float(whole[longest] / max(others[longest], 1e-12))
    if ratio < WORKER_RATIO:
        return []
    alone = len(timeline.dp_ranks) < 2
    where = f"stage {timeline.stages[longest]} of {len(timeline.stages)}"
    say = f"{where} computes {ratio:.2f}x of the mean of the other stages, "
    say += (
        "and there is no second replica to tell a slow device from an uneven split"
        if alone
        else "on every replica: the split of the layers is uneven, no device is at fault"
    )
    return [
        _suspect(
            relief, kind="stage_partition", function="forward-compute, backward-compute",
            workers=tuple(int(r) for r in timeline.ranks[:, longest]), dimension="beta",
            reason=say, ratio=ratio, layer="script", failure_type=None,
        )
    ]  # fmt: skip


def _variation(pricing: Pricing, levels: Levels) -> list[_Suspect]:
    """Price the time lost because compute varies between micro-batches, and say whether it is data."""
    timeline = pricing.timeline
    relief = _unchanged(pricing)
    spread = []
    for kind in COMPUTE:
        for stage in range(len(timeline.stages)):
            mine = _of(pricing, kind, stage)
            if len(mine):
                # Divide by the rest and multiply by its mean per stage: same work, no variation.
                mean = levels.rest[mine].mean(axis=(0, 1), keepdims=True)
                spread.append(levels.rest[mine].std() / max(levels.rest[mine].mean(), 1e-12))
                relief[mine] = mean / np.maximum(levels.rest[mine], 1e-12)
    varies = float(np.mean(spread)) if spread else 0.0
    if varies < _VARIES:
        return []
    alike = forward_backward_correlation(pricing, levels)
    data = alike is not None and alike >= DATA_CORRELATION
    said = "unknown" if alike is None else f"{alike:.2f}"
    reason = (
        f"compute times vary by {varies:.0%} from micro-batch to micro-batch, forward and backward "
        f"alike (correlation {said}): sequence lengths are uneven, no device is at fault"
        if data
        else f"compute times vary by {varies:.0%} from micro-batch to micro-batch, forward and "
        f"backward not alike (correlation {said}): jitter on many ranks, not one slow device"
    )
    return [
        _suspect(
            relief, kind="sequence_length" if data else "jitter",
            function="forward-compute, backward-compute",
            workers=tuple(sorted(int(r) for r in timeline.ranks.reshape(-1))), dimension="sigma",
            reason=reason, ratio=1.0 + varies, layer="script", failure_type=None,
        )
    ]  # fmt: skip


def forward_backward_correlation(pricing: Pricing, levels: Levels) -> float | None:
    """Return how alike forward and backward times of the same micro-batch vary, or None.

    The correlation is over all micro-batches, steps, stages and replicas, each relative to what
    its worker usually takes.
    """
    pairs: dict[tuple[int, int, int], dict[str, int]] = defaultdict(dict)
    for i, op in enumerate(pricing.timeline.ops):
        if op.optype in COMPUTE:
            micro_batch = op.mb_id if op.mb_id >= 0 else op.seq_id
            pairs[op.stage, op.mc, micro_batch][op.optype] = i
    both = [(p[COMPUTE[0]], p[COMPUTE[1]]) for p in pairs.values() if len(p) == 2]
    if len(both) < 2:
        return None
    forward = levels.rest[[f for f, _ in both]].reshape(-1)
    backward = levels.rest[[b for _, b in both]].reshape(-1)
    if forward.std() < 1e-9 or backward.std() < 1e-9:
        return None
    return float(np.corrcoef(forward, backward)[0, 1])


def _links(pricing: Pricing) -> list[_Suspect]:
    """Name the pipeline links slower than the same direction elsewhere."""
    timeline, work = pricing.timeline, pricing.times.work_s
    by_edge: dict[tuple[str, int, int], list[tuple[int, ...]]] = defaultdict(list)
    for group in pricing.graph.groups:
        first = timeline.ops[group.members[0]]
        if len(group.members) == 2 and first.optype in P2P:
            ends = sorted(timeline.ops[m].stage for m in group.members)
            by_edge[first.optype.split("-")[0], ends[0], ends[1]].append(group.members)
    if not by_edge:
        return []
    medians = {
        edge: np.median(np.stack([work[list(pair)].max(axis=0) for pair in pairs]), axis=(0, 1))
        for edge, pairs in by_edge.items()
    }
    out = []
    for (direction, low, high), per_dp in medians.items():
        alike = [values for (way, _, _), values in medians.items() if way == direction]
        reference = max(float(lower_median(np.concatenate(alike))), _LEAST_TRANSFER_S)
        for dp in np.flatnonzero(per_dp >= LINK_RATIO * reference):
            relief = _unchanged(pricing)
            for pair in by_edge[direction, low, high]:
                for op in pair:
                    took = np.maximum(work[op, :, dp], reference)
                    relief[op, :, dp] = reference / took
            ranks = tuple(int(timeline.ranks[dp, stage]) for stage in (low, high))
            out.append(
                _suspect(
                    relief, kind="slow_link",
                    function=f"{direction}-send, {direction}-recv", workers=ranks,
                    dimension="mu", ratio=float(per_dp[dp] / reference), layer="infrastructure",
                    failure_type="slow_network",
                    reason=(
                        f"the {direction} transfer between ranks {ranks[0]} and {ranks[1]} takes "
                        f"{seconds(per_dp[dp])} once both are there, "
                        f"{seconds(reference)} on the other links"
                    ),
                )
            )  # fmt: skip
    return out


def _groups(pricing: Pricing) -> list[_Suspect]:
    """Name the stages whose data-parallel collectives take longer than on the other stages."""
    timeline, work = pricing.timeline, pricing.times.work_s
    stages = len(timeline.stages)
    if stages < 3:
        return []
    out = []
    for optype in DP_COLLECTIVES:
        per_stage = [_of(pricing, optype, stage) for stage in range(stages)]
        if not all(len(ops) for ops in per_stage):
            continue
        total = np.array([np.median(work[ops].max(axis=2), axis=1).sum() for ops in per_stage])
        reference = max(float(lower_median(total)), _LEAST_TRANSFER_S)
        for stage in range(stages):
            # The first and last stage also hold the embedding, and so move more bytes.
            limit = END_STAGE_RATIO if stage in (0, stages - 1) else LINK_RATIO
            if total[stage] < limit * reference:
                continue
            relief = _unchanged(pricing)
            relief[per_stage[stage]] *= reference / total[stage]
            ranks = tuple(int(r) for r in timeline.ranks[:, stage])
            out.append(
                _suspect(
                    relief, kind="slow_group",
                    function=optype, workers=ranks, dimension="mu",
                    ratio=float(total[stage] / reference), layer="infrastructure",
                    failure_type="slow_network",
                    reason=(
                        f"{optype} of stage {timeline.stages[stage]} takes "
                        f"{seconds(total[stage])} a step once all ranks are there, "
                        f"{seconds(reference)} on the other stages"
                    ),
                )
            )  # fmt: skip
    return out


def _launch(pricing: Pricing) -> list[Finding]:
    """Price the gaps before ops: data loading, garbage collection, a busy host."""
    timeline = pricing.timeline
    saved = pricing.measured_step_s - pricing.actual_step_s
    if pricing.launch_slowdown < NOT_WORTH_SPLITTING:
        return []
    delay = np.zeros(timeline.ranks.shape)
    for i, op in enumerate(timeline.ops):
        late = np.clip(pricing.times.launch_s[i], 0, None).mean(axis=0)
        delay[:, op.stage] += late - lower_median(late)
    few = delay >= 0.5 * delay.max()
    some = 0 < few.sum() <= delay.size / 4 and delay.max() >= 0.5 * saved
    chosen = timeline.ranks[few] if some else timeline.ranks.reshape(-1)
    ranks = tuple(sorted(int(rank) for rank in chosen))
    where = f"on ranks {', '.join(map(str, ranks))}" if some else "on all ranks alike"
    return [
        Finding(
            kind="launch_delay", function="launch", workers=ranks, lost_per_step_s=saved,
            lost_s=saved * len(timeline.steps), dimension="beta",
            ratio=float(pricing.launch_slowdown), layer="infrastructure" if some else "script",
            failure_type=None,
            reason=(
                f"ops start late, {seconds(saved)} a step after what they waited for was done, "
                f"{where}: data loading, garbage collection or a busy host"
            ),
        )
    ]  # fmt: skip
