"""The public face: a forecast of a spec as one record, as pandas frames and as JSON."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rerail.domain.series import FloatArray
from rerail.tools.durations import counted
from rerail.tools.forecast.compare import Comparison, Expected, compare, expected_of
from rerail.tools.forecast.job import JobForecast, forecast_job
from rerail.tools.forecast.placed_steps import PLACEMENTS, PlacedSteps, placed_steps
from rerail.tools.forecast.placement import PlacementFound, place_slow_nodes, why_not_placed
from rerail.tools.forecast.sensitivity import (
    MOST_CLASSES,
    Critical,
    Effect,
    critical_path,
    effects_by_kernel,
    kernel_classes,
)
from rerail.tools.forecast.spec import Spec
from rerail.tools.forecast.step import StepForecast, StepModel

if TYPE_CHECKING:
    import pandas

PERCENTS = (5, 25, 50, 75, 95, 99)
_MOST_SENSITIVITY_OPS = 20_000


@dataclass(frozen=True, eq=False)
class Forecast:
    """Everything that is forecast of a spec; times in seconds."""

    spec: Spec
    step: StepForecast
    job: JobForecast | None = None
    sensitivity: tuple[Effect, ...] = ()
    critical: tuple[Critical, ...] = ()
    placement: PlacementFound | None = None
    placed: PlacedSteps | None = None
    observed: Comparison | None = None
    note: str = ""
    left_out: tuple[str, ...] = ()

    def size(self) -> str:
        """Return how large the job is and how much was drawn, in words."""
        step = self.step
        return (
            f"{counted(self.spec.world_size, 'rank')}, {counted(step.replicas, 'replica')}, "
            f"{step.samples:,} drawn {'graphs' if self.spec.graph is not None else 'pipelines'}"
        )

    @property
    def expected(self) -> Expected:
        """Return what a run is compared with."""
        return expected_of(self.step)

    def frames(self) -> dict[str, pandas.DataFrame]:
        """Return the results as pandas frames by name: step, percentiles, job, sensitivity, ..."""
        import pandas as pd

        expected = self.expected
        frames = {
            "step": pd.DataFrame([step_row(self.step)]),
            "distribution": pd.DataFrame(
                {"probability": [i / 100 for i in range(101)], "step_time_s": expected.quantiles_s}
            ),
            "sensitivity": pd.DataFrame(
                [asdict(one) for one in self.sensitivity],
                columns=["kernel", "change", "p50_change", "p95_change"],
            ),
            "critical_path": pd.DataFrame(
                [asdict(one) for one in self.critical],
                columns=["stage", "rank", "op", "position", "share"],
            ),
        }
        if self.job is not None:
            frames["job"] = pd.DataFrame([job_row(self.job)])
        if self.placement is not None:
            grid = self.placement.node
            frames["placement"] = pd.DataFrame(
                [
                    {"replica": r, "stage": s, "node": int(grid[r, s])}
                    for r in range(grid.shape[0])
                    for s in range(grid.shape[1])
                ]
            )
        if self.placed is not None:
            frames["placement_steps"] = pd.DataFrame(
                [{"placement": name, **row} for name, row in placed_row(self.placed).items()]
            )
        if self.observed is not None:
            frames["observed"] = pd.DataFrame([asdict(self.observed)])
        return frames

    def moved_nodes(self) -> list[tuple[int, int, int]]:
        """Return (node, replica, stage) of each slow node in the best placement found."""
        if self.placement is None:
            return []
        slow = {one.node for one in self.spec.nodes.slow}
        return [
            (node, replica, stage)
            for replica, row in enumerate(self.placement.node.tolist())
            for stage, node in enumerate(row)
            if node in slow
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the object of contracts, `rerail forecast --json`; no NaN in it."""
        row = step_row(self.step)
        return {
            "schema_version": 1,
            "name": self.spec.name,
            "step_time_s": {key: row[key] for key in row if key not in ("samples", "replicas")},
            "samples": self.step.samples,
            "replicas": self.step.replicas,
            "world_size": self.spec.world_size,
            "quantiles_s": [float(v) for v in self.expected.quantiles_s],
            "regimes": [
                {"share": part.share, "mean_s": part.step.mean} for part in self.step.parts
            ],
            "sensitivity": [asdict(one) for one in self.sensitivity],
            "critical_path": [asdict(one) for one in self.critical],
            "placement": placement_row(self.placement, self.placed),
            "job": None if self.job is None else job_row(self.job),
            "observed": None if self.observed is None else asdict(self.observed),
            "notes": [
                text
                for text in (self.note, *(self.job.notes if self.job else ()), *self.left_out)
                if text
            ],
        }


def forecast(
    spec: Spec,
    *,
    samples: int = 20_000,
    seed: int = 0,
    observed_s: FloatArray | None = None,
    explain: bool = True,
    note: str = "",
) -> Forecast:
    """Forecast a spec; `explain` adds sensitivity, the critical path and the placement search.

    `observed_s` are step times in seconds that the forecast is held against.

    Raises:
        ConfigError: the job part of the spec cannot be (see `forecast_job`).
    """
    model = StepModel(spec)
    step = model.forecast(samples, seed)
    job = None
    if spec.job is not None:
        job = forecast_job(step, spec.job, spec.node_count, seed=seed)
    effects: tuple[Effect, ...] = ()
    critical: tuple[Critical, ...] = ()
    placement, placed = None, None
    left_out = []
    if explain:
        count = len(kernel_classes(spec))
        if count > MOST_CLASSES:
            left_out.append(
                f"what moves the step time was not computed: {count} classes of kernels, at most "
                f"{MOST_CLASSES}; give pools of one kind the same `kernel`"
            )
        else:
            effects = tuple(effects_by_kernel(spec, min(samples, 4000), seed))
        if len(model.program.nodes) <= _MOST_SENSITIVITY_OPS:
            critical = tuple(critical_path(spec, seed=seed))
        else:
            left_out.append(
                f"the critical path was not computed: {len(model.program.nodes):,} ops, at most "
                f"{_MOST_SENSITIVITY_OPS:,}"
            )
        placement = place_slow_nodes(model)
        if placement is not None:
            placed = placed_steps(model, placement, samples, seed)
        left_out.append(why_not_placed(spec))
    seen = None if observed_s is None else compare(observed_s, expected_of(step))
    return Forecast(
        spec, step, job, effects, critical, placement, placed, seen, note,
        tuple(filter(None, left_out)),
    )  # fmt: skip


def step_row(step: StepForecast) -> dict[str, Any]:
    """Return the step time's numbers as plain values, seconds."""
    return {
        "mean": step.step.mean,
        "sd": step.step.sd,
        **{f"p{percent}": step.percentile(percent) for percent in PERCENTS},
        "standard_error_p95": step.standard_error_p95_s,
        "persistent_sd": step.persistent_sd_s,
        "samples": step.samples,
        "replicas": step.replicas,
    }


def job_row(job: JobForecast) -> dict[str, Any]:
    """Return the job's numbers as plain values; times in seconds, infinite ones as None."""
    known = job.reliability
    return {
        "steps": job.steps,
        "nodes": known.nodes,
        "train_s": job.train_s,
        **{f"time_p{percent}_s": job.percentile(percent) for percent in PERCENTS},
        "goodput": job.goodput,
        "failures": job.failures,
        "mean_between_failures_s": _finite(known.mean_between_s),
        "young_daly_s": _finite(known.young_daly_s),
        "checkpoint_every_s": _finite(known.interval_s),
        "spare_nodes": job.spares,
        "deadline_s": job.deadline_s,
        "misses_deadline": job.misses_deadline,
        "misses_deadline_error": job.misses_deadline_error,
    }


def placement_row(
    found: PlacementFound | None, placed: PlacedSteps | None
) -> dict[str, Any] | None:
    """Return the placement's numbers as plain values, seconds; None where none was searched."""
    if found is None or placed is None:
        return None
    return {
        "best_s": found.best_s,
        "given_s": found.given_s,
        "worst_s": found.worst_s,
        "healthy_s": found.healthy_s,
        "gain": found.gain,
        "best_to_worst": found.best_to_worst,
        "node": found.node.tolist(),
        "step_time_s": placed_row(placed),
        "saved_mean_s": placed.saved_mean_s,
        "saved_mean_standard_error_s": placed.saved_mean_error_s,
        "saved_p95_s": placed.saved_p95_s,
        "saved_p95_standard_error_s": placed.saved_p95_error_s,
        "samples": placed.samples,
    }


def placed_row(placed: PlacedSteps) -> dict[str, dict[str, float]]:
    """Return mean and percentiles of the step in seconds by placement: best, given, worst."""
    at = np.array(PERCENTS) / 100.0
    return {
        name: {
            "mean": placed.step[name].mean,
            **{
                f"p{p}": float(value)
                for p, value in zip(PERCENTS, placed.step[name].quantile(at), strict=True)
            },
        }
        for name in PLACEMENTS
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
