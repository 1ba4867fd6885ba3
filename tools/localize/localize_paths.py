"""From files to findings: recognise what each input is, judge it, and keep what a plot needs."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rerail.errors import EvidenceError
from rerail.tools.localize.findings import Localization, LocalizeOutcome, outcome_of
from rerail.tools.localize.heatmap_svg import HeatMap
from rerail.tools.localize.observations import JobTimes
from rerail.tools.profiles.counter_files import SUFFIXES
from rerail.tools.profiles.summary import REQUEST, is_summary

if TYPE_CHECKING:
    from rerail.tools.localize.records import Records
    from rerail.tools.profiles.expected import Expected
    from rerail.tools.profiles.matrix import ProfileMatrix
    from rerail.tools.replay.whatif import Pricing

_PARQUET = {".parquet", ".pq"}
_TABLES = {".csv", ".tsv"}
_HEAD = 65536
_HINT = (
    "an op timeline (Parquet), Kineto traces, NCCL Inspector or profiler dumps, xpu_timer, a CSV or Parquet of "
    "collectives or compute times, DCGM exports, or logs with straggler reports"
)
LogReader = Callable[[Path], "Localization | None"]


@dataclass(frozen=True, eq=False)
class Judged:
    """A verdict with its heat map, if its input has one; of profiles also what they were and should be."""

    localization: Localization
    heatmap: HeatMap | None = None
    matrix: ProfileMatrix | None = None
    expected: Expected | None = None


def localize_paths(
    paths: list[Path], read_log: LogReader | None = None, expected: Path | None = None
) -> list[Judged]:
    """Judge files and folders; the profiles of one run in one folder are one input.

    `expected` is a file of boxes that healthy windows of the job were learned into.

    Raises:
        EvidenceError: a file does not exist, cannot be read, or is nothing that can be judged.
    """
    files = _files(paths)
    kinds: dict[str, list[Path]] = {}
    for path in files:
        kinds.setdefault(_sniff(path), []).append(path)
    out: list[Judged] = []
    for path in kinds.get("timeline", []):
        out.append(_timeline(path))
    for path in kinds.get("times", []):
        from rerail.tools.localize.tables import read_times

        out.append(_records(read_times(path)))
    if "profile" in kinds:
        out.append(_profiles(kinds["profile"], expected))
    if "inspector" in kinds:
        from rerail.tools.localize.inspector import read_inspector

        out.append(_records(read_inspector(kinds["inspector"])))
    if "nccl profiler" in kinds:
        from rerail.tools.localize.nccl_profiler import read_nccl_profiler

        out.append(_records(read_nccl_profiler(kinds["nccl profiler"])))
    if "xpu_timer" in kinds:
        from rerail.tools.localize.xpu_timer import read_xpu_timer

        out.append(_records(read_xpu_timer(kinds["xpu_timer"])))
    for path in kinds.get("metrics", []):
        out.append(_metrics(path))
    unread = []
    for path in kinds.get("text", []):
        logged = _log(path, read_log)
        out += logged
        unread += [] if logged else [path]
    if not out:
        first = unread[0] if unread else paths[0]
        raise EvidenceError(
            f"{first} holds nothing to localise from", subject=str(first), hint=_HINT
        )
    return _confirm(out)


def _log(path: Path, read_log: LogReader | None) -> list[Judged]:
    """Return what the job's own timers and reports in a log say."""
    from rerail.tools.localize.megatron_timers import read_timers

    found = read_log(path) if read_log is not None else None
    timers = read_timers(path)
    out = [] if found is None else [Judged(found)]
    if timers is None:
        return out
    if timers.self_s:
        return [*out, _records(timers)]
    told = Localization(str(path), LocalizeOutcome.NO_REFERENCE)
    told.missing += timers.notes
    return [*out, Judged(told)]


def _files(paths: list[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        if not path.exists():
            raise EvidenceError(f"{path} does not exist", subject=str(path), hint=_HINT)
        if path.is_dir():
            inside = sorted(
                p
                for p in path.rglob("*")
                if p.is_file()
                and not p.name.startswith(".")
                and p.name != REQUEST
                and not p.name.endswith(SUFFIXES)
            )
            if not inside:
                raise EvidenceError(f"{path} is an empty folder", subject=str(path), hint=_HINT)
            files += inside
        else:
            files.append(path)
    return files


def _sniff(path: Path) -> str:
    suffix = path.suffix.lower()
    if is_summary(path):
        return "profile"
    if suffix in _PARQUET:
        return _sniff_parquet(path)
    if suffix == ".gz" and path.name.endswith(".json.gz"):
        return "profile"
    try:
        with path.open("rb") as stream:
            head = stream.read(_HEAD).decode("utf-8", errors="replace")
    except OSError as error:
        raise EvidenceError(f"{path}: {error.strerror}", subject=str(path)) from None
    from rerail.tools.localize.gpu_metrics import looks_like_metrics
    from rerail.tools.localize.inspector import looks_like_inspector
    from rerail.tools.localize.nccl_profiler import looks_like_nccl_profiler
    from rerail.tools.localize.tables import looks_like_times
    from rerail.tools.localize.xpu_timer import looks_like_xpu_timer

    first = head.split("\n", 1)[0]
    if looks_like_inspector(first):
        return "inspector"
    if looks_like_nccl_profiler(head):
        return "nccl profiler"
    if looks_like_xpu_timer(head):
        return "xpu_timer"
    if suffix == ".json" or '"traceEvents"' in head:
        return "profile"
    if looks_like_metrics(head):
        return "metrics"
    return "times" if looks_like_times(_columns(first, suffix)) else "text"


def _columns(line: str, suffix: str) -> list[str]:
    """Return the names in the first line of a table, none where it is no line of a table."""
    try:
        return next(csv.reader([line], delimiter="\t" if suffix == ".tsv" else ","), [])
    except csv.Error:
        return []


def _sniff_parquet(path: Path) -> str:
    from rerail.tools.localize.tables import looks_like_times
    from rerail.tools.replay.timeline import REQUIRED, column_names

    names = column_names(path)
    if set(names).issuperset(REQUIRED):
        return "timeline"
    if looks_like_times(names):
        return "times"
    if "optype" in names:
        return "timeline"
    raise EvidenceError(
        f"{path}: the columns {', '.join(names[:8])} are those of nothing that can be judged",
        subject=str(path), hint=_HINT,
    )  # fmt: skip


def _timeline(path: Path) -> Judged:
    from rerail.tools.replay.causes import localize_timeline
    from rerail.tools.replay.timeline import read_timeline

    verdict, pricing = localize_timeline(read_timeline(path))
    return Judged(verdict, _timeline_map(pricing))


def _timeline_map(pricing: Pricing) -> HeatMap:
    from rerail.tools.replay.causes import worker_step_ratio

    timeline = pricing.timeline
    ratio = worker_step_ratio(pricing)
    rows = tuple(
        f"{timeline.ranks[d, s]} (dp {timeline.dp_ranks[d]}, stage {timeline.stages[s]})"
        for s in range(len(timeline.stages))
        for d in range(len(timeline.dp_ranks))
    )
    return HeatMap(
        f"{Path(timeline.name).name}: compute time of each worker over its stage's replicas",
        ratio, rows, tuple(str(s) for s in timeline.steps), "worker",
    )  # fmt: skip


def _records(records: Records) -> Judged:
    from rerail.tools.localize.judge import localize
    from rerail.tools.localize.records import assemble

    job = assemble(records)
    verdict = localize(job)
    verdict.missing += records.notes
    if len(job.ranks) < 2:
        verdict.missing.append("one rank only: there is nothing to compare it with")
        verdict.outcome = LocalizeOutcome.NO_REFERENCE
    return Judged(verdict, _job_map(job))


def _job_map(job: JobTimes) -> HeatMap | None:
    if job.self_s is None:
        return None
    values = job.self_s.T
    ratio = np.empty_like(values)
    for role in np.unique(job.role):
        mine = job.role == role
        ratio[mine] = values[mine] / np.maximum(np.median(values[mine], axis=0), 1e-12)
    return HeatMap(
        f"{Path(job.name).name}: own compute of each rank over the median of its role",
        ratio, tuple(str(int(r)) for r in job.ranks), tuple(str(i) for i in range(ratio.shape[1])),
    )  # fmt: skip


def _profiles(paths: list[Path], expected: Path | None) -> Judged:
    from rerail.tools.profiles.collect import read_job
    from rerail.tools.profiles.expected import read_expected
    from rerail.tools.profiles.judge import judge_profiles

    matrix = read_job(paths)
    boxes = read_expected(expected) if expected is not None else None
    verdict = judge_profiles(_profiles_name(paths), matrix, boxes)
    ratio = matrix.own_s.T.copy()
    for role in np.unique(matrix.role):
        mine = matrix.role == role
        ratio[mine] /= np.maximum(np.median(ratio[mine], axis=0), 1e-12)
    heatmap = HeatMap(
        "own compute of each rank over the median of its role", ratio,
        tuple(str(int(r)) for r in matrix.ranks), tuple(str(i) for i in range(matrix.steps)),
    )  # fmt: skip
    return Judged(verdict, heatmap, matrix, boxes)


def _profiles_name(paths: list[Path]) -> str:
    folders = {path.parent for path in paths}
    if len(paths) == 1:
        return str(paths[0])
    return f"profiles in {folders.pop()}" if len(folders) == 1 else "profiles"


def _metrics(path: Path) -> Judged:
    from rerail.tools.localize.gpu_metrics import judge_gpu_metrics, read_gpu_metrics

    found = judge_gpu_metrics(read_gpu_metrics(path))
    return Judged(Localization(str(path), outcome_of(found), found))


def _confirm(judged: list[Judged]) -> list[Judged]:
    """Add what GPU counters say of a node to the findings that name a rank on that node."""
    counters = [f for one in judged for f in one.localization.findings if f.function == "counters"]
    if not counters:
        return judged
    for one in judged:
        changed = []
        for finding in one.localization.findings:
            seen = [
                c.reason
                for c in counters
                if finding.function != "counters" and set(c.nodes) & set(finding.nodes)
            ]
            more = "; confirmed by counters: " + "; ".join(seen) if seen else ""
            changed.append(replace(finding, reason=finding.reason + more))
        one.localization.findings = changed
    return judged
