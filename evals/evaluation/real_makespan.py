"""The toy on real local processes: the coordinator beside the two other rules, in the same run.

GPUs are slots and inference sleeps, so that a small machine holds many of them; processes, files,
polling and starting are real. Metrics of the SizePartitioner rule run after all inference.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from rerail.evals.evaluation import sleeper
from rerail.evals.evaluation.toy import toy
from rerail.recovery.evaluation.coordinator import Coordinator
from rerail.recovery.evaluation.local_runner import LocalRunner
from rerail.tools.evaluation.baselines import size_partitioned
from rerail.tools.evaluation.plan import Piece, Trial
from rerail.tools.evaluation.spec import EvaluationSpec, Harness

_POLL_S = 0.02


@dataclass(frozen=True)
class Measured:
    """Makespans in seconds, as measured on processes; the plan's own expectation beside its run."""

    nodes: int
    plan_s: float
    expected_s: float
    jobs_s: float
    sizes_s: float
    complete: bool


def measure(nodes: int, scale: float, seed: int = 3) -> Measured:
    """Run one toy by all three rules."""
    spec = toy(seed, nodes, scale)
    harness = Harness(kind="python", model=f"{sleeper.__file__}:make")
    spec = spec.model_copy(update={"harness": harness})
    with TemporaryDirectory() as name:
        folder = Path(name)
        times = {
            "gpus_per_node": spec.cluster.gpus_per_node, "load_s": spec.model.load_s,
            "local_load_s": spec.model.local_load_s, "contention": spec.model.contention,
            "sets": {n: one.model_dump() for n, one in spec.datasets.items()},
        }  # fmt: skip
        (folder / "times.json").write_text(json.dumps(times))
        os.environ["RERAIL_SLEEPER"] = str(folder / "times.json")
        try:
            found = Coordinator(spec, LocalRunner(spec.gpus), folder / "run").run()
            single = [
                (Trial((Piece(n, 0, one.items, 0.0),)), one.metric_s)
                for n, one in spec.datasets.items()
            ]
            jobs = _run_jobs(spec, single)
            sizes = _run_jobs(spec, [(trial, 0.0) for trial in size_partitioned(spec)[1]])
            sizes += _run_metrics(spec)
        finally:
            del os.environ["RERAIL_SLEEPER"]
    complete = len(found.metrics) == len(spec.datasets) and not found.failed
    return Measured(nodes, found.makespan_s, found.expected_s, jobs, sizes, complete)


def _run_jobs(spec: EvaluationSpec, jobs: Sequence[tuple[Trial, float]]) -> float:
    """Run jobs in order on free slots and return the seconds until the last has ended."""
    begin = time.monotonic()
    waiting = list(jobs)
    running: dict[int, subprocess.Popen[bytes]] = {}
    while waiting or running:
        for slot in [slot for slot, one in running.items() if one.poll() is not None]:
            del running[slot]
        for slot in range(spec.gpus):
            if waiting and slot not in running:
                trial, held = waiting.pop(0)
                pieces = json.dumps([[p.dataset, p.last - p.first] for p in trial.pieces])
                node = str(slot // spec.cluster.gpus_per_node)
                running[slot] = subprocess.Popen(
                    [sys.executable, "-S", sleeper.__file__, node, pieces, str(held)]
                )
        time.sleep(_POLL_S)
    return time.monotonic() - begin


def _run_metrics(spec: EvaluationSpec) -> float:
    """Run the metrics of all sets on the CPUs and return the seconds until the last has ended."""
    begin = time.monotonic()
    waiting = sorted((one.metric_s for one in spec.datasets.values()), reverse=True)
    running: list[subprocess.Popen[bytes]] = []
    while waiting or running:
        running = [one for one in running if one.poll() is None]
        while waiting and len(running) < spec.cluster.nodes * spec.cluster.cpus_per_node:
            running.append(subprocess.Popen(["sleep", f"{waiting.pop(0):.3f}"]))
        time.sleep(_POLL_S)
    return time.monotonic() - begin
