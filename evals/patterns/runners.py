"""Where one machine ends: the same traces and logs scanned by processes, on Slurm nodes and on Ray.

Nodes are daemons of this machine, so times show what a shard costs beside its work, and no speed-up.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

from rerail.assistant.pipeline import scan_plan
from rerail.evals.cluster.lab import Lab, cannot_run
from rerail.log_parsers.scan_work import log_work
from rerail.log_parsers.sources import SCANNED_SUFFIX
from rerail.tools.profiles.collect import profile_files
from rerail.tools.profiles.shard_work import ProfileWork
from rerail.tools.profiles.summary import SHARD_SUFFIX
from rerail.tools.shards.runners import run_processes, run_ray
from rerail.tools.shards.work import ShardWork, merge_shards, merged_bytes, scan_shard

TRACES = Path("tests/data/kineto/dlrm")
LOGS = Path("tests/data/faultlab")
SHARDS = 8
NODES = (1, 2, 4)


@dataclass(frozen=True)
class Ran:
    """One runner on one input: `same` bytes as one process gives, seconds, shards that came back.

    `alone` are the seconds of one process that scans everything without a runner.
    """

    runner: str
    what: str
    same: bool
    seconds: float
    shards: int
    alone: float


@dataclass(frozen=True)
class _Input:
    what: str
    folder: Path
    work: ShardWork
    files: list[str]
    whole: bytes
    alone: float

    def judged(self, runner: str, took: float, parts: list[bytes]) -> Ran:
        merged = merge_shards(self.work, parts)
        same = merged_bytes(self.work, merged) == self.whole
        return Ran(runner, self.what, same, took, len(parts), self.alone)


def run_all(traces: Path, logs: Path, *, slurm: bool, ray: bool) -> list[Ran]:
    """Scan both with every runner that this machine has; the logs are read in a copy.

    Raises:
        UsageError: Slurm or Ray was asked for and does not come up.
    """
    with TemporaryDirectory(prefix="rerail-shards-") as name:
        root = Path(name)
        root.chmod(0o755)
        copytree(logs, root / "logs")
        traces = traces.absolute()
        work, files = log_work([root / "logs"], scan_plan())
        inputs = [
            _input("traces", traces, ProfileWork(), [str(p) for p in profile_files(traces)]),
            _input("logs", root / "logs", work, files),
        ]
        rows = _here("processes", inputs, lambda one: run_processes(one.work, one.files, SHARDS, 2))
        if ray:
            rows += _on_ray(inputs)
        if slurm:
            rows += _on_slurm(inputs, root)
        return rows


def _input(what: str, folder: Path, work: ShardWork, files: list[str]) -> _Input:
    begin = time.perf_counter()
    whole = merged_bytes(work, merge_shards(work, [scan_shard(work, files, 0, 1)]))
    return _Input(what, folder, work, files, whole, time.perf_counter() - begin)


def _here(
    runner: str, inputs: list[_Input], run: Callable[[_Input], dict[int, bytes]]
) -> list[Ran]:
    rows = []
    for one in inputs:
        begin = time.perf_counter()
        done = run(one)
        rows.append(one.judged(runner, time.perf_counter() - begin, list(done.values())))
    return rows


def _on_ray(inputs: list[_Input]) -> list[Ran]:
    import ray

    ray.init(
        num_cpus=2, object_store_memory=80_000_000, include_dashboard=False, log_to_driver=False
    )
    try:
        return _here("Ray", inputs, lambda one: run_ray(one.work, one.files, SHARDS, "auto"))
    finally:
        ray.shutdown()


def _on_slurm(inputs: list[_Input], root: Path) -> list[Ran]:
    program = str(Path(sys.executable).with_name("rerail"))
    rows = []
    with Lab(nodes=max(NODES)) as lab:
        for nodes in NODES:
            for one in inputs:
                out = root / f"out-{one.what}-{nodes}"
                flag = ["--logs"] if one.what == "logs" else []
                begin = time.perf_counter()
                lab.run(
                    "srun", "-N", str(nodes), "-n", str(SHARDS), "--overcommit", "--oversubscribe",
                    program, "scan", str(one.folder), "--out", str(out), *flag,
                )  # fmt: skip
                took = time.perf_counter() - begin
                suffix = SCANNED_SUFFIX if flag else SHARD_SUFFIX
                parts = [path.read_bytes() for path in sorted(out.glob(f"shard-*{suffix}"))]
                rows.append(one.judged(f"Slurm, {nodes} node{'s' * (nodes > 1)}", took, parts))
    return rows


def runners_table(out: Console, traces: Path = TRACES, logs: Path = LOGS) -> bool:
    """Scan real traces and recorded logs with all runners; return whether the bytes are the same."""
    if not traces.is_dir() or not logs.is_dir():
        out.print(f"skipped: runners ({traces} or {logs} is not there)", markup=False)
        return True
    lacks = cannot_run()
    ray = find_spec("ray") is not None
    rows = run_all(traces, logs, slurm=not lacks, ray=ray)
    table = Table(title=f"the same shards of {SHARDS}, nodes are daemons of this machine (2 cores)")
    for column in (
        "runner",
        "input",
        "same bytes",
        "seconds",
        "one process alone",
        "overhead a shard",
    ):
        table.add_column(column, justify="left" if column in ("runner", "input") else "right")
    for row in rows:
        table.add_row(
            row.runner, row.what, f"{'yes' if row.same else 'NO'}, {row.shards} of {SHARDS}",
            f"{row.seconds:.1f}", f"{row.alone:.1f}",
            f"{max(0.0, row.seconds - row.alone) / SHARDS:.2f} s",
        )  # fmt: skip
    out.print(table)
    for name, why in (("Slurm", lacks), ("Ray", "" if ray else "pip install 'rerail[ray]'")):
        if why:
            out.print(f"skipped: {name} ({why})", markup=False)
    return all(row.same and row.shards == SHARDS for row in rows)
