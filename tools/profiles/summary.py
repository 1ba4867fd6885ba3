"""What is kept of one worker's profile: three numbers per function, and collectives one by one.

A summary has no timestamps, so clocks need not agree. Gigabytes of events become about 30 KB of
gzip JSON.
"""

from __future__ import annotations

import gzip
import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rerail.errors import EvidenceError
from rerail.tools.shards.unpack import unpack

VERSION = 1
SUFFIX = ".profile.json.gz"
SHARD_SUFFIX = ".profiles.jsonl.gz"
REQUEST = "window.json"
"""Beside the summaries of a running job: which iterations its ranks profile next."""
MOST_RANKS = 100_000_000
_HINT = "write it again with `rerail scan`"


@dataclass(frozen=True)
class FunctionPattern:
    """One function on one worker.

    `beta` is the share of the window in which the function owns the critical path. `mu` is the mean
    use of the resource that bounds it (`source` counter: 0..1 of the peak; bandwidth: bytes a
    second; none: NaN) and `sigma` its standard deviation in the same unit. `by_step_s` are the seconds
    it owned in each step and `time_s` all that it ran, overlapped or not.
    """

    function: str
    work: str
    resource: str
    beta: float
    mu: float
    sigma: float
    source: str
    calls: int
    time_s: float
    by_step_s: tuple[float, ...]


@dataclass(frozen=True)
class CollectiveRuns:
    """The executions of one collective in one process group, in order; durations in seconds."""

    function: str
    group: str
    kind: str
    size: int
    bytes: float
    calls: int
    durations_s: tuple[float, ...]
    steps: tuple[int, ...]


@dataclass(frozen=True)
class Summary:
    """One worker's window. `role` is a stage, expert or node type, empty where nobody said it.

    `cpu_wait_s` are the seconds of each step in which the thread of the loop was ready and had no core.
    """

    rank: int
    world: int
    host: str
    role: str
    job: str
    first_step: int
    step_s: tuple[float, ...]
    own_s: tuple[float, ...]
    device: bool
    functions: tuple[FunctionPattern, ...]
    collectives: tuple[CollectiveRuns, ...]
    source: str = ""
    notes: tuple[str, ...] = ()
    cost: dict[str, float] = field(default_factory=dict)
    cpu_wait_s: tuple[float, ...] = ()

    @property
    def window_s(self) -> float:
        """Return the length of the window in seconds."""
        return sum(self.step_s)


def is_summary(path: Path) -> bool:
    """Tell whether a file is named as a summary or as the summaries of a shard."""
    return path.name.endswith((SUFFIX, SUFFIX.removesuffix(".gz"), SHARD_SUFFIX))


def summary_bytes(summary: Summary) -> bytes:
    """Return the gzip JSON of a summary; the same summary gives the same bytes."""
    text = json.dumps(
        summary_row(summary), separators=(",", ":"), allow_nan=False, ensure_ascii=False
    )
    return gzip.compress(text.encode(), 6, mtime=0)


def summary_row(summary: Summary) -> dict[str, Any]:
    """Return a summary as a JSON object."""
    return {"rerail_profile": VERSION, **_plain(asdict(summary))}


def write_summary(summary: Summary, folder: Path) -> Path:
    """Write a summary as `rank<N>.profile.json.gz` and return its path; readers never see half."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"rank{summary.rank:06d}{SUFFIX}"
    part = path.with_suffix(".part")
    part.write_bytes(summary_bytes(summary))
    part.replace(path)
    return path


def read_summary(path: Path) -> Summary:
    """Read one summary.

    Raises:
        EvidenceError: the file is cut off, of another version, or no summary.
    """
    try:
        raw = path.read_bytes()
        text = unpack(raw) if raw[:2] == b"\x1f\x8b" else raw
        row = json.loads(text)
    except (OSError, EOFError, ValueError, RecursionError, gzip.zlib.error) as error:  # type: ignore[attr-defined]
        raise EvidenceError(
            f"{path}: not a readable profile summary ({error})", subject=str(path), hint=_HINT
        ) from None
    return summary_of(row, str(path))


def summary_of(row: Any, where: str) -> Summary:
    """Return the summary that a JSON object holds.

    Raises:
        EvidenceError: it is of another version, or a field is missing or of a wrong type.
    """
    if not isinstance(row, dict) or "rerail_profile" not in row:
        raise EvidenceError(f"{where}: not a profile summary", subject=where, hint=_HINT)
    if row["rerail_profile"] != VERSION:
        raise EvidenceError(
            f"{where}: a profile summary of version {row['rerail_profile']}, this rerail reads {VERSION}",
            subject=where, hint="use the same rerail for `rerail scan` and `rerail localize`",
        )  # fmt: skip
    try:
        return Summary(
            _rank(row["rank"]), _rank(row["world"]), str(row["host"]), str(row["role"]),
            str(row["job"]), int(row["first_step"]), _floats(row["step_s"]),
            _floats(row["own_s"]), bool(row["device"]),
            tuple(_function(one) for one in row["functions"]),
            tuple(_collective(one) for one in row["collectives"]),
            str(row.get("source") or where), tuple(map(str, row.get("notes", ()))),
            {str(k): float(v) for k, v in row.get("cost", {}).items()},
            _floats(row.get("cpu_wait_s", ())),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise EvidenceError(
            f"{where}: the profile summary is damaged ({type(error).__name__}: {error})",
            subject=where, hint=_HINT,
        ) from None  # fmt: skip


def _function(row: dict[str, Any]) -> FunctionPattern:
    return FunctionPattern(
        str(row["function"]), str(row["work"]), str(row["resource"]), _share(row["beta"]),
        _float(row["mu"]), _float(row["sigma"]), str(row["source"]), int(row["calls"]),
        _seconds(row["time_s"]), _floats(row["by_step_s"]),
    )  # fmt: skip


def _collective(row: dict[str, Any]) -> CollectiveRuns:
    return CollectiveRuns(
        str(row["function"]), str(row["group"]), str(row["kind"]), int(row["size"]),
        _float(row["bytes"]), int(row["calls"]), _floats(row["durations_s"]),
        tuple(int(n) for n in row["steps"]),
    )  # fmt: skip


def _rank(value: Any) -> int:
    number = int(value)
    if not 0 <= number <= MOST_RANKS:
        raise ValueError(f"a rank or world size of {number}")
    return number


def _float(value: Any) -> float:
    return math.nan if value is None else float(value)


def _share(value: Any) -> float:
    number = float(value)
    if not 0 <= number <= 1.0001:
        raise ValueError(f"beta is {number:g}, a share of the window is expected")
    return number


def _seconds(value: Any) -> float:
    number = float(value)
    if not 0 <= number < 1e9:
        raise ValueError(f"a time of {number:g} s")
    return number


def _floats(values: Any) -> tuple[float, ...]:
    return tuple(_seconds(one) for one in values)


def _plain(value: Any) -> Any:
    """Return plain JSON values with six significant digits; NaN becomes null."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value
