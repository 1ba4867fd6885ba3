"""Data sets on real local processes: the coordinator beside the two other rules, in the same run.

GPUs are slots and inference sleeps, so that a small machine holds many of them; processes, files,
polling and starting are real, and all three rules start the same Python program with the same
imports. Metrics of the SizePartitioner rule run after all inference.
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
from rerail.recovery.evaluation.coordinator import Coordinator
from rerail.recovery.evaluation.files import RunFolder
from rerail.recovery.evaluation.local_runner import LocalRunner
from rerail.tools.evaluation.baselines import one_job_per_set, size_partitioned
from rerail.tools.evaluation.plan import Piece
from rerail.tools.evaluation.spec import EvaluationSpec, Harness

_POLL_S = 0.02


@dataclass(frozen=True)
class Job:
    """What one process does: pieces to infer, and the sets that it scores on its held slot."""

    pieces: tuple[Piece, ...]
    scored: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measured:
    """Makespans in seconds, as measured on processes, beside what the planner's clock says of each.

    `complete` says that every rule has scored all items of every set.
    """

    plan_s: float
    jobs_s: float
    sizes_s: float
    expected_plan_s: float
    expected_jobs_s: float
    expected_sizes_s: float
    replanned: int
    complete: bool


def measure(spec: EvaluationSpec) -> Measured:
    """Run the data sets of a spec by all three rules, one after the other."""
    harness = Harness(kind="python", model=f"{sleeper.__file__}:make")
    spec = spec.model_copy(update={"harness": harness})
    expected_sizes, trials = size_partitioned(spec)
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
            found = Coordinator(spec, LocalRunner(spec.gpus), folder / "plan").run()
            jobs = _run(spec, folder / "jobs", [_whole(spec, name) for name in spec.datasets])
            sizes = _run(spec, folder / "sizes", [Job(trial.pieces) for trial in trials])
            sizes += _run(spec, folder / "sizes", _metrics(spec), on_cpus=True)
        finally:
            del os.environ["RERAIL_SLEEPER"]
        complete = not found.failed and all(
            RunFolder(folder / rule).metric(n) == {"items": float(one.items)}
            for rule in ("plan", "jobs", "sizes")
            for n, one in spec.datasets.items()
        )
    return Measured(
        found.makespan_s, jobs, sizes, found.expected_s, one_job_per_set(spec), expected_sizes,
        len(found.replanned), complete,
    )  # fmt: skip


def _whole(spec: EvaluationSpec, name: str) -> Job:
    return Job((Piece(name, 0, spec.datasets[name].items, 0.0),), (name,))


def _metrics(spec: EvaluationSpec) -> list[Job]:
    longest_first = sorted(spec.datasets, key=lambda name: -spec.datasets[name].metric_s)
    return [Job((), (name,)) for name in longest_first]


def _run(
    spec: EvaluationSpec, folder: Path, jobs: Sequence[Job], *, on_cpus: bool = False
) -> float:
    """Run jobs in order on free slots and return the seconds until the last has ended."""
    RunFolder(folder).prepare()
    (folder / "spec.json").write_text(spec.model_dump_json())
    per = spec.cluster.cpus_per_node if on_cpus else spec.cluster.gpus_per_node
    begin = time.monotonic()
    waiting = list(jobs)
    running: dict[int, subprocess.Popen[bytes]] = {}
    while waiting or running:
        for slot in [slot for slot, one in running.items() if one.poll() is not None]:
            del running[slot]
        for slot in range(spec.cluster.nodes * per):
            if waiting and slot not in running:
                job = waiting.pop(0)
                pieces = json.dumps([[p.dataset, p.first, p.last] for p in job.pieces])
                command = [
                    sys.executable, "-m", "rerail.evals.evaluation.coupled_job", str(folder),
                    str(slot // per), pieces, json.dumps(job.scored),
                ]  # fmt: skip
                running[slot] = subprocess.Popen(command)
        time.sleep(_POLL_S)
    return time.monotonic() - begin
