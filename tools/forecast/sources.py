"""What a forecast can be made from: a spec, an op timeline, Kineto traces, or step times alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from rerail.domain.series import FloatArray, StepSeries
from rerail.errors import EvidenceError, UsageError
from rerail.tools.forecast.from_kineto import spec_from_kineto
from rerail.tools.forecast.from_trace import spec_from_timeline
from rerail.tools.forecast.spec import GraphOp, Pool, Spec, read_spec

LEAST_STEPS = 8


@dataclass(frozen=True, eq=False)
class Source:
    """A spec and, where it was built from a measured run, that run's step times in seconds."""

    spec: Spec
    measured_s: FloatArray | None = field(default=None, repr=False)
    note: str = ""


def read_source(
    paths: Sequence[Path], read_log: Callable[[Path], list[StepSeries]] | None = None
) -> Source:
    """Read what the files hold; `read_log` reads step times of a training log.

    Raises:
        UsageError: files of different kinds were given together.
        ConfigError: a spec has a wrong key.
        EvidenceError: a trace or series is missing, unreadable or too short.
    """
    if not paths:
        raise UsageError("no spec was given", hint="rerail forecast spec.yaml")
    files = [p for path in paths for p in (_inside(path) if path.is_dir() else [path])]
    first = files[0]
    if not first.exists():
        raise EvidenceError(
            f"{first} does not exist", subject=str(first), hint="rerail forecast spec.yaml"
        )
    kind = _kind(first)
    if kind == "kineto":
        spec, measured = spec_from_kineto(files)
        text = (
            f"built from {len(files)} Kineto traces of {len(measured)} steps, whose median took "
            f"{np.median(measured):.4g} s"
        )
        return Source(spec, measured, text)
    if len(files) > 1:
        raise UsageError(
            "one spec, timeline or series at a time; only Kineto traces come as several files",
            subject=str(files[1]), hint=f"rerail forecast {first}",
        )  # fmt: skip
    if kind == "spec":
        return Source(read_spec(first))
    if kind == "timeline":
        spec, measured = spec_from_timeline(first)
        return Source(spec, measured, f"built from the op timeline of {len(measured)} steps")
    return _from_series(first, read_log)


def _inside(folder: Path) -> list[Path]:
    found = sorted(
        p for p in folder.rglob("*") if p.name.endswith((".json", ".json.gz")) and p.is_file()
    )
    if not found:
        raise EvidenceError(
            f"{folder} holds no Kineto traces (.json, .json.gz)", subject=str(folder),
            hint="rerail forecast spec.yaml",
        )  # fmt: skip
    return found


def _kind(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix in (".yaml", ".yml"):
        return "spec"
    if suffix == ".gz":
        return "kineto"
    if suffix == ".json":
        with path.open("rb") as stream:
            return "kineto" if b"traceEvents" in stream.read(1 << 20) else "spec"
    if suffix in (".parquet", ".pq"):
        from rerail.tools.replay.timeline import column_names

        return "timeline" if "optype" in column_names(path) else "series"
    return "series"


def _from_series(path: Path, read_log: Callable[[Path], list[StepSeries]] | None) -> Source:
    from rerail.tools.detectors.read_series import read_series

    table = path.suffix.lower() in (".csv", ".tsv", ".parquet", ".pq")
    found = read_series(path) if table or read_log is None else read_log(path)
    if not found:
        raise EvidenceError(
            f"{path} has no step times", subject=str(path), hint="columns step,step_time_s"
        )
    times = max(found, key=len).step_time_s
    times = times[np.isfinite(times) & (times > 0)]
    if len(times) < LEAST_STEPS:
        raise EvidenceError(
            f"{path} has {len(times)} step times; a distribution needs {LEAST_STEPS}",
            subject=str(path), hint="give a longer series, or a spec",
        )  # fmt: skip
    return Source(
        spec_from_steps(times, path.name), times,
        f"built from {len(times)} step times alone; nothing is known of what a step consists of",
    )  # fmt: skip


def spec_from_steps(times: FloatArray, name: str = "series") -> Spec:
    """Return the spec of a step as one op with the measured times, in seconds."""
    pool = Pool(distribution="fit", samples_s=tuple(float(t) for t in times), kernel="step")
    graph = {"step": GraphOp(pool="step", rank=0)}
    return Spec(name=name, pools={"step": pool}, graph=graph)
