"""The guilty window of the guilty ranks as a small trace that Perfetto opens."""

from __future__ import annotations

import gzip
import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rerail.errors import EvidenceError, UsageError
from rerail.tools.profiles.read_trace import read_trace
from rerail.tools.profiles.summary import is_summary
from rerail.tools.profiles.trace import ANNOTATION, KERNEL, Trace

_MOST_EVENTS = 50_000


def write_perfetto(paths: Sequence[Path], ranks: Collection[int], out: Path) -> int:
    """Write the events of these ranks, the longest 50,000 each, and return how many there are.

    Times of each rank begin at zero, because clocks of nodes differ.

    Raises:
        UsageError: the inputs are summaries, which hold no events.
        EvidenceError: no trace of these ranks is there, or the file cannot be written.
    """
    traces = [path for path in paths if not is_summary(path)]
    if not traces:
        raise UsageError(
            "summaries hold no events for Perfetto", hint="give the profiler's own traces"
        )
    rows: list[dict[str, Any]] = []
    for path in traces:
        try:
            trace = read_trace(path)
        except EvidenceError:
            continue  # the verdict names it already
        if trace.rank in ranks:
            rows += _events(trace)
    if not rows:
        raise EvidenceError(
            f"no trace of ranks {', '.join(map(str, sorted(ranks)))} was found", subject=str(out),
            hint="give the folder of the traces",
        )  # fmt: skip
    text = json.dumps(
        {"displayTimeUnit": "ms", "traceEvents": rows}, separators=(",", ":")
    ).encode()
    try:
        out.write_bytes(gzip.compress(text, mtime=0) if out.suffix == ".gz" else text)
    except OSError as error:
        raise EvidenceError(f"{out}: {error.strerror}", subject=str(out)) from None
    return sum(row["ph"] == "X" for row in rows)


def _events(trace: Trace) -> list[dict[str, Any]]:
    rank = int(trace.rank or 0)
    order = np.argsort(-trace.dur_us, kind="stable")[:_MOST_EVENTS]
    order = order[np.argsort(trace.start_us[order], kind="stable")]
    begin = float(trace.start_us.min())
    where = f" on {trace.host}" if trace.host else ""
    rows: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank}{where}"}}
    ]
    lanes: dict[tuple[bool, int], int] = {}
    for i in order.tolist():
        kind, lane = int(trace.kind[i]), int(trace.lane[i])
        track = lanes.setdefault((kind == KERNEL, lane), len(lanes))
        row: dict[str, Any] = {
            "ph": "X", "name": trace.names[int(trace.name[i])], "pid": rank, "tid": track,
            "ts": round(float(trace.start_us[i]) - begin, 3), "dur": float(trace.dur_us[i]),
            "cat": "annotation" if kind == ANNOTATION else "kernel" if kind == KERNEL else "event",
        }  # fmt: skip
        rows.append(row)
    return rows
