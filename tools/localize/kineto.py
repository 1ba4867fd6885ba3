"""PyTorch profiler (Kineto) traces: own compute, collectives and steps of each rank.

One JSON file per rank, plain or gzip. On GPUs the union of the kernels that are not collectives is
a rank's own compute; on CPUs, where collectives block, it is the step less the collectives.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rerail.domain.series import FloatArray
from rerail.errors import EvidenceError
from rerail.tools.localize.records import Records

_STEP = re.compile(r"ProfilerStep#(\d+)")
_COMM_KERNEL = re.compile(r"^nccl(?:Dev)?Kernel|^ncclKernel|^rccl", re.IGNORECASE)
_COMM_ANNOTATION = re.compile(r"^(?:gloo|mpi|nccl|ucc):\w+")
_US = 1e-6


def read_kineto(paths: Iterable[Path]) -> Records:
    """Read the traces of several ranks.

    Raises:
        EvidenceError: a file is no Kineto trace, or two files are of the same rank.
    """
    records = Records("kineto traces")
    seen: dict[int, Path] = {}
    world = 0
    for path in paths:
        trace = _load(path)
        world = max(world, _world(trace))
        rank = _rank(trace, path)
        if rank in seen:
            raise EvidenceError(
                f"{path}: rank {rank} was already read from {seen[rank]}",
                subject=str(path), hint="give one trace per rank, of one run",
            )  # fmt: skip
        seen[rank] = path
        _one(trace, rank, records, path)
    if world > len(seen):
        records.notes.append(f"traces of {world - len(seen)} of {world} ranks are missing")
    return records


def _load(path: Path) -> dict[str, Any]:
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8", errors="replace") as stream:
            trace = json.load(stream)
    except (OSError, EOFError, json.JSONDecodeError) as error:
        raise EvidenceError(
            f"{path}: not a readable trace ({error})", subject=str(path),
            hint="export it again with profile.export_chrome_trace",
        ) from None  # fmt: skip
    if not isinstance(trace, dict) or not isinstance(trace.get("traceEvents"), list):
        raise EvidenceError(
            f"{path}: not a Kineto trace, it has no traceEvents", subject=str(path),
            hint="profile.export_chrome_trace(path)",
        )  # fmt: skip
    return trace


def _rank(trace: dict[str, Any], path: Path) -> int:
    info = trace.get("distributedInfo")
    if isinstance(info, dict) and isinstance(info.get("rank"), int):
        return int(info["rank"])
    named = re.search(r"rank[-_]?(\d+)", path.name)
    if named:
        return int(named.group(1))
    raise EvidenceError(
        f"{path}: the trace does not say which rank it is of", subject=str(path),
        hint="name the file rank<N>.json",
    )  # fmt: skip


def _world(trace: dict[str, Any]) -> int:
    info = trace.get("distributedInfo")
    return int(info.get("world_size", 0)) if isinstance(info, dict) else 0


@dataclass
class _Events:
    """The events of one rank that matter here; times in microseconds."""

    steps: list[tuple[float, float, int]] = field(default_factory=list)
    kernels: list[tuple[float, float]] = field(default_factory=list)
    comm_kernels: list[dict[str, Any]] = field(default_factory=list)
    annotations: list[dict[str, Any]] = field(default_factory=list)
    functions: set[str] = field(default_factory=set)
    operators: set[str] = field(default_factory=set)

    def add(self, event: dict[str, Any]) -> None:
        name, kind = str(event.get("name", "")), event.get("cat")
        if kind == "kernel":
            if _COMM_KERNEL.match(name):
                self.comm_kernels.append(event)
            else:
                self.kernels.append(_span(event))
                self.functions.add(name)
        elif kind == "cpu_op":
            self.operators.add(name)
        elif kind == "user_annotation":
            step = _STEP.match(name)
            if step:
                self.steps.append((*_span(event), int(step.group(1))))
            elif _COMM_ANNOTATION.match(name):
                self.annotations.append(event)


def _span(event: dict[str, Any]) -> tuple[float, float]:
    return float(event["ts"]), float(event["ts"]) + float(event["dur"])


def _one(trace: dict[str, Any], rank: int, records: Records, path: Path) -> None:
    events = _Events()
    for event in trace["traceEvents"]:
        if event.get("ph") == "X" and isinstance(event.get("dur"), (int, float)):
            events.add(event)
    steps = sorted(events.steps)
    if not steps:
        whole = events.kernels or [_span(event) for event in events.annotations]
        if not whole:
            raise EvidenceError(
                f"{path}: no profiler steps, kernels or collectives", subject=str(path),
                hint="profile with ProfilerActivity.CUDA and call profiler.step()",
            )  # fmt: skip
        steps = [(min(b for b, _ in whole), max(e for _, e in whole), 0)]
    host = trace.get("host_name")
    if isinstance(host, str) and host:
        records.node[rank] = host
    on_device = bool(events.kernels)
    records.role[rank] = _role(events)
    records.device_times &= on_device
    comm = events.comm_kernels if on_device else events.annotations
    _collectives(comm, rank, steps, records, trace)
    busy = np.array(events.kernels if on_device else [_span(event) for event in comm])
    for begin, end, _ in steps:
        length = covered(busy, begin, end)
        own = length if on_device else (end - begin) - length
        records.self_s[rank].append(own * _US)


def _role(events: _Events) -> str:
    """Return a name for what a rank does: ranks that run the same functions play the same role.

    The first and last stage of a pipeline run functions that the others do not, and stages with
    more layers run more of them; a slow device runs exactly what its peers run.
    """
    names = sorted(events.functions or events.operators)
    count = round(math.log(max(len(events.kernels), 1)) / math.log(1.1))
    return f"{hashlib.sha256(chr(0).join(names).encode()).hexdigest()[:12]}-{count}"


def _collectives(
    events: list[dict[str, Any]], rank: int, steps: list[tuple[float, float, int]],
    records: Records, trace: dict[str, Any],
) -> None:  # fmt: skip
    names = _group_names(trace)
    starts = np.array([begin for begin, _, _ in steps])
    count: dict[int, int] = defaultdict(int)
    for event in sorted(events, key=lambda e: float(e["ts"])):
        args = event.get("args") or {}
        group = str(args.get("Process Group Name", "") or "")
        ranks = str(args.get("Process Group Ranks", "") or "")
        label = str(args.get("Process Group Description", "") or names.get(group, group))
        key = records.key(f"{group}|{ranks}|{label}", "" if label else "world")
        size = args.get("In msg nelems", -1)
        at = int(np.searchsorted(starts, float(event["ts"]), side="right")) - 1
        step = steps[max(at, 0)][2]
        records.add(
            rank, key, count[key], step, float(event["dur"]) * _US,
            int(size) if isinstance(size, int) else -1,
        )  # fmt: skip
        count[key] += 1


def _group_names(trace: dict[str, Any]) -> dict[str, str]:
    info = trace.get("distributedInfo")
    rows = info.get("pg_config", []) if isinstance(info, dict) else []
    out: dict[str, str] = {}
    for row in rows if isinstance(rows, list) else []:
        if isinstance(row, dict):
            out[str(row.get("pg_name", ""))] = str(row.get("pg_desc", ""))
    return out


def step_spans(path: Path) -> tuple[int, list[tuple[float, float, list[tuple[str, float, float]]]]]:
    """Return the rank of a trace and its steps: begin, end and (group, begin, end) of collectives.

    Seconds on the trace's clock; collectives in the order of their begin, each in the step in which
    it begins.

    Raises:
        EvidenceError: the file is no Kineto trace, or has no profiler steps.
    """
    trace = _load(path)
    rank = _rank(trace, path)
    events = _Events()
    for event in trace["traceEvents"]:
        if event.get("ph") == "X" and isinstance(event.get("dur"), (int, float)):
            events.add(event)
    steps = sorted(events.steps)
    if not steps:
        raise EvidenceError(
            f"{path}: no profiler steps", subject=str(path),
            hint="call profiler.step() after every training step",
        )  # fmt: skip
    names = _group_names(trace)
    out: list[tuple[float, float, list[tuple[str, float, float]]]] = [
        (begin * _US, end * _US, []) for begin, end, _ in steps
    ]
    starts = np.array([begin for begin, _, _ in steps])
    for event in sorted(events.comm_kernels or events.annotations, key=lambda e: float(e["ts"])):
        begin, end = _span(event)
        at = int(np.searchsorted(starts, begin, side="right")) - 1
        if at < 0 or begin > steps[at][1]:
            continue
        args = event.get("args") or {}
        group = str(args.get("Process Group Name", "") or "")
        label = f"{args.get('Process Group Ranks', '') or ''} {names.get(group, group)}".strip()
        out[at][2].append((label or "world", begin * _US, end * _US))
    return rank, out


def covered(intervals: FloatArray, begin: float, end: float) -> float:
    """Return the length of the union of intervals (n, 2) inside [begin, end]."""
    if not len(intervals):
        return 0.0
    inside = np.clip(intervals, begin, end)
    inside = inside[inside[:, 1] > inside[:, 0]]
    if not len(inside):
        return 0.0
    inside = inside[np.argsort(inside[:, 0])]
    reach = np.maximum.accumulate(inside[:, 1])
    gap = np.maximum(inside[1:, 0] - reach[:-1], 0.0)
    return float(reach[-1] - inside[0, 0] - gap.sum())
