"""Price every suspect of a timeline in step time: what the run would cost without it.

S, S_x, M_W and M_S are those of What-if analysis (ByteDance, OSDI 2025, equations 1, 2, 4 and 5).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from rerail.domain.series import FloatArray
from rerail.tools.replay.dependencies import Graph, build_graph
from rerail.tools.replay.simulate import (
    Times,
    ideal_times,
    measure,
    replay_variants,
    step_times,
)
from rerail.tools.replay.timeline import P2P, Timeline

_Key = TypeVar("_Key", int, str)

NOT_WORTH_SPLITTING = 1.03
_MOST_DP_RANKS = 64


@dataclass(eq=False)
class Pricing:
    """Slowdowns as ratios to the straggler-free step; times are means over steps, in seconds.

    `by_*` hold S_x: the ideal run with x as it was, over the ideal run. `worker_score[dp, stage]`
    is min(S_dp, S_stage). `m_w` and `m_s` are the shares of the lost time that vanish when the
    slowest 3 % of workers, or the last stage, become ideal; None where the run is not slow.
    """

    timeline: Timeline
    graph: Graph
    times: Times
    ideal_s: FloatArray
    measured_step_s: float
    actual_step_s: float
    ideal_step_s: float
    slowdown: float
    launch_slowdown: float
    step_slowdown: FloatArray
    by_optype: dict[str, float] = field(default_factory=dict)
    by_stage: dict[int, float] = field(default_factory=dict)
    by_dp_rank: dict[int, float] = field(default_factory=dict)
    worker_score: FloatArray | None = None
    m_w: float | None = None
    m_s: float | None = None
    top_workers: list[int] = field(default_factory=list)

    @property
    def lost_per_step_s(self) -> float:
        """Return actual - ideal, in seconds per step."""
        return self.actual_step_s - self.ideal_step_s

    def without(self, work_s: FloatArray) -> float:
        """Return the mean step time with other work times, in seconds."""
        return float(step_times(self.timeline, self.graph, work_s).mean())

    def saved_by(self, selected: NDArray[np.bool_]) -> float:
        """Return the seconds per step saved if the selected (ops, 1 or steps, dp) were ideal."""
        work = np.where(selected, self.ideal_s, self.times.work_s)
        return self.actual_step_s - self.without(work)


def price(timeline: Timeline) -> Pricing:
    """Replay a timeline as it was, ideal, and with each part restored.

    Raises:
        EvidenceError: the timeline's ops do not form a training step (see `build_graph`).
    """
    graph = build_graph(timeline)
    times = measure(timeline, graph)
    ideal = ideal_times(timeline, graph, times)
    actual = step_times(timeline, graph, times.work_s)
    best = step_times(timeline, graph, ideal)
    measured = float(timeline.step_time_s().mean())
    result = Pricing(
        timeline, graph, times, ideal, measured, float(actual.mean()), float(best.mean()),
        float(actual.mean() / best.mean()), measured / float(actual.mean()), actual / best,
    )  # fmt: skip
    if result.slowdown >= NOT_WORTH_SPLITTING:
        _split(result)
        _worst_workers(result)
    return result


def _kind(optype: str) -> str:
    return f"{optype.split('-')[0]}-pp-comm" if optype in P2P else optype


def _split(result: Pricing) -> None:
    timeline = result.timeline
    kinds = [_kind(op.optype) for op in timeline.ops]
    names = sorted(set(kinds))
    dp_shown = _candidates(result)
    dp = len(timeline.dp_ranks)
    count = len(names) + len(timeline.stages) + len(dp_shown)
    ops = np.zeros((count, len(timeline.ops)), dtype=bool)
    ranks = np.ones((count, dp), dtype=bool)
    for row, name in enumerate(names):
        ops[row] = [kind == name for kind in kinds]
    for row, stage in enumerate(range(len(timeline.stages)), len(names)):
        ops[row] = [op.stage == stage for op in timeline.ops]
    for row, rank in enumerate(dp_shown, len(names) + len(timeline.stages)):
        ops[row] = True
        ranks[row] = np.arange(dp) == rank
    means = replay_variants(
        timeline, result.graph, result.ideal_s, result.times.work_s, ops, ranks
    ).mean(axis=1)
    ratio = [float(value) for value in means / result.ideal_step_s]
    cut = len(names)
    result.by_optype = _sorted(dict(zip(names, ratio[:cut], strict=True)))
    per_stage = ratio[cut : cut + len(timeline.stages)]
    result.by_stage = _sorted({int(timeline.stages[i]): value for i, value in enumerate(per_stage)})
    per_dp = ratio[cut + len(timeline.stages) :]
    result.by_dp_rank = _sorted(
        {int(timeline.dp_ranks[i]): value for i, value in zip(dp_shown, per_dp, strict=True)}
    )
    by_dp = np.ones(dp)
    by_dp[dp_shown] = per_dp
    result.worker_score = np.minimum(by_dp[:, None], np.array(per_stage)[None, :])


def _candidates(result: Pricing) -> list[int]:
    """Return the dp ranks worth a replay; beyond 64, those with the most excess work."""
    dp = len(result.timeline.dp_ranks)
    if dp <= _MOST_DP_RANKS:
        return list(range(dp))
    excess = np.clip(result.times.work_s - result.ideal_s, 0, None).sum(axis=(0, 1))
    return sorted(np.argsort(excess)[-_MOST_DP_RANKS:].tolist())


def _sorted(values: dict[_Key, float]) -> dict[_Key, float]:
    return dict(sorted(values.items(), key=lambda item: -item[1]))


def _worst_workers(result: Pricing) -> None:
    timeline = result.timeline
    assert result.worker_score is not None
    ranks = timeline.ranks
    order = sorted(
        np.ndindex(*ranks.shape),
        key=lambda at: (-float(result.worker_score[at]), int(ranks[at])),  # type: ignore[index]
    )
    top = order[: -(-len(order) * 3 // 100)]
    chosen = np.zeros((len(timeline.ops), 1, len(timeline.dp_ranks)), dtype=bool)
    of_stage = np.array([op.stage for op in timeline.ops])
    for dp, stage in top:
        chosen[of_stage == stage, :, dp] = True
    result.top_workers = [int(ranks[at]) for at in top]
    lost = result.lost_per_step_s
    result.m_w = result.saved_by(chosen) / lost
    last = (of_stage == len(timeline.stages) - 1)[:, None, None]
    result.m_s = result.saved_by(last) / lost
