"""Four real gloo processes with random delays: fitted on half of the steps, held against the other.

The model knows the pieces of work of each rank and the collectives between them, and nothing of the
step times that it is held against. PRISM reports 4.3 to 5.4 % error of p95 (arXiv 2510.15596, later
versions) and a KS distance of 20.8 % (first version).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from rerail.evals.detectors.gloo_jobs import run_worker
from rerail.tools.forecast.fit import ks_distance
from rerail.tools.forecast.from_trace import Step, spec_from_spans
from rerail.tools.forecast.step import StepModel

WORLD = 4
_LIMIT_S = 300
_WARM_UP = 20


@dataclass(frozen=True)
class Validation:
    """Forecast against the other half: relative errors of p50 and p95, KS distance; step in seconds.

    `between_halves` is the KS distance of the two measured halves: what no model can better.
    """

    steps: int
    p50_s: float
    p95_s: float
    p50_error: float
    p95_error: float
    ks: float
    between_halves: float


def run_spans(folder: Path, steps: int, seed: int = 1) -> dict[int, list[Step]]:
    """Run the job and return the spans of each rank.

    Raises:
        RuntimeError: the job failed; with its last output.
    """
    worker = "rerail.evals.forecast.gloo_worker"
    run_worker(worker, WORLD, str(folder), str(steps), str(seed), limit_s=_LIMIT_S)
    out: dict[int, list[Step]] = {}
    for rank in range(WORLD):
        rows = json.loads((folder / f"spans{rank}.json").read_text())
        out[rank] = [
            (begin, end, [(str(key), at, to) for key, at, to in collectives])
            for begin, end, collectives in rows[_WARM_UP:]
        ]
    return out


def validate(spans: dict[int, list[Step]], seed: int = 1) -> Validation:
    """Fit on every second step and compare with the others: a step is from the last end to this one."""
    count = len(spans[0])
    ends = np.array([max(spans[rank][i][1] for rank in spans) for i in range(count)])
    times = np.diff(ends)
    half = {rank: steps[1::2] for rank, steps in spans.items()}
    found = StepModel(spec_from_spans(half)).forecast(20_000, seed)
    measured = times[1::2]
    p50, p95 = np.percentile(measured, [50, 95])
    return Validation(
        len(measured),
        float(p50),
        float(p95),
        found.percentile(50) / float(p50) - 1.0,
        found.percentile(95) / float(p95) - 1.0,
        ks_distance(found.step.table, measured),
        ks_distance(times[0::2], measured),
    )


def real_validation(steps: int, seed: int = 1) -> Validation:
    """Run the job and validate the forecast of it."""
    with TemporaryDirectory() as name:
        return validate(run_spans(Path(name), steps, seed), seed)
