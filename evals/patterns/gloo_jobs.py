"""Real 4-process jobs with the collector and one fault each: is the right rank named?"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

from rerail.evals.detectors.gloo_jobs import run_ranks, torch_missing
from rerail.tools.localize.findings import Localization
from rerail.tools.localize.localize_paths import localize_paths

FAULTS = ("healthy", "function", "rank", "loader", "collector")
_LIMIT_S = 900
_WORLD = 4


@dataclass(frozen=True)
class RealJob:
    """The verdict on one job, and what its collector cost: per rank, shares and seconds."""

    verdict: Localization
    outside_share: tuple[float, ...]
    window_cost_s: tuple[float, ...]
    bytes: tuple[int, ...]


def run_real_job(
    faults: tuple[str, ...] = FAULTS, guilty: int = 2, before: int = 20, folder: Path | None = None
) -> dict[str, RealJob]:
    """Run four processes over gloo through the faults, profiled by the collector, and judge each.

    Raises:
        RuntimeError: the job failed or took longer than fifteen minutes; with its last output.
    """
    if folder is None:
        with TemporaryDirectory() as name:
            return run_real_job(faults, guilty, before, Path(name))
    worker = "rerail.evals.patterns.gloo_worker"
    run_ranks(worker, folder, _WORLD, str(guilty), str(before), *faults, limit_s=_LIMIT_S)
    return {fault: _judged(folder / fault) for fault in faults}


def _judged(folder: Path) -> RealJob:
    told = sorted(folder.glob("told*.txt"))
    rows = [json.loads(path.read_text()) for path in told]
    for path in told:
        path.unlink()
    return RealJob(
        localize_paths([folder])[0].localization, tuple(row["outside_share"] for row in rows),
        tuple(row["window_cost_s"] for row in rows),
        tuple(path.stat().st_size for path in folder.glob("*.profile.json.gz")),
    )  # fmt: skip


def real_table(out: Console) -> bool:
    """Run each fault once and print what was said; return whether all is right."""
    reason = torch_missing()
    if reason:
        out.print(f"skipped: real jobs ({reason})", markup=False)
        return True
    table = Table(title="real jobs, 4 processes over gloo on this machine's CPU, rank 2 guilty")
    for name in ("fault", "said", "function", "outside the window", "window costs", "bytes a rank"):
        table.add_column(name)
    right = 0
    notes: list[tuple[str, str]] = []
    for fault, job in run_real_job().items():
        notes += [(fault, note) for note in job.verdict.missing]
        findings = job.verdict.findings
        named = [one.workers for one in findings]
        right += named == [] if fault == "healthy" else bool(named) and set(named) == {(2,)}
        table.add_row(
            fault, f"{job.verdict.outcome} {named}", findings[0].function if findings else "-",
            f"{max(job.outside_share):.4%}", f"{max(job.window_cost_s):.2f} s", str(max(job.bytes)),
        )  # fmt: skip
    out.print(table)
    for fault, note in notes:
        out.print(f"{fault}: {note}", markup=False)
    out.print(f"right in {right} of {len(FAULTS)}; no GPU was used", markup=False)
    return right == len(FAULTS)
