"""Plans and runs as rows of a timeline and as tables: what the plot, the page and notebooks show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rerail.tools.durations import counted
from rerail.tools.evaluation.plan import Plan
from rerail.tools.evaluation.spec import EvaluationSpec

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Bar:
    """One bar of a timeline: its row, what it is (inference, metric, load), its name, and seconds."""

    row: int
    kind: str
    name: str
    begin_s: float
    end_s: float


@dataclass(frozen=True)
class Timeline:
    """Bars over rows; `rows` are their names from the top."""

    title: str
    rows: tuple[str, ...]
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class Report:
    """What is shown of a plan: what it is called, its expected end by rule, and timelines."""

    name: str
    spec: EvaluationSpec
    plan: Plan
    rules_s: dict[str, float]
    timelines: tuple[Timeline, ...]

    def size(self) -> str:
        """Return what is planned on what, in words."""
        return plan_size(self.spec, self.plan)


def plan_size(spec: EvaluationSpec, plan: Plan) -> str:
    """Return how many data sets and trials are planned on how many machines, in words."""
    cluster = spec.cluster
    each = " each" if cluster.nodes > 1 else ""
    return (
        f"{counted(len(spec.datasets), 'data set')} on {counted(cluster.nodes, 'node')} with "
        f"{counted(cluster.gpus_per_node, 'GPU')}{each}: {counted(len(plan.trials), 'trial')}"
    )


def planned(spec: EvaluationSpec, plan: Plan, most_rows: int = 48) -> Timeline:
    """Return the plan as a timeline: GPUs from the top, then the CPUs that compute metrics."""
    gpus = min(spec.gpus, most_rows)
    metrics = [one for one in plan.slots if one.kind == "metric" and one.end_s > one.begin_s]
    cpus = min(1 + max((one.place for one in metrics), default=-1), most_rows)
    bars = []
    for one in plan.slots:
        if one.kind == "inference" and one.place < gpus:
            bars.append(Bar(one.place, one.kind, one.name, one.begin_s, one.end_s))
    for one in metrics:
        if one.place < cpus:
            bars.append(Bar(gpus + one.place, one.kind, one.name, one.begin_s, one.end_s))
    names = (*(f"GPU {i}" for i in range(gpus)), *(f"CPU {i}" for i in range(cpus)))
    hidden = spec.gpus - gpus
    more = f" ({hidden} more GPUs are not shown)" if hidden else ""
    return Timeline(f"planned{more}", names, tuple(bars))


def ran(tasks: Sequence[tuple[str, str, float, float]], most_rows: int = 48) -> Timeline:
    """Return what ran, (kind, name, begin, end) each, every task in the first row that is free.

    A task begins where the runner took it; on a cluster that is its submission.
    """
    names: list[str] = []
    bars: list[Bar] = []
    for label, kinds in (("GPU", ("stage", "probe", "trial")), ("CPU", ("metric",))):
        free: list[float] = []
        first = len(names)
        for kind, name, begin, end in sorted(tasks, key=lambda one: one[2]):
            if kind not in kinds:
                continue
            row = next((i for i, until in enumerate(free) if until <= begin), len(free))
            if row == len(free):
                free.append(end)
            free[row] = end
            if row < most_rows:
                drawn = {"stage": "load", "probe": "load", "trial": "inference"}.get(kind, kind)
                bars.append(Bar(first + row, drawn, name, begin, end))
        names += [f"{label} {i}" for i in range(min(len(free), most_rows))]
    return Timeline("as it ran", tuple(names), tuple(bars))


def plan_frames(plan: Plan) -> dict[str, pd.DataFrame]:
    """Return a plan as pandas frames: `pieces` of each trial in order, and `slots` in seconds.

    Raises:
        ImportError: pandas is not installed.
    """
    import pandas as pd

    pieces: list[dict[str, Any]] = [
        {"trial": i, "dataset": p.dataset, "first": p.first, "last": p.last, "seconds": p.seconds}
        for i, trial in enumerate(plan.trials)
        for p in trial.pieces
    ]
    return {
        "pieces": pd.DataFrame(pieces),
        "slots": pd.DataFrame([vars(one) for one in plan.slots]),
    }
