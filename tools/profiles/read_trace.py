"""One Kineto file into a `Trace`: complete events only, columns instead of objects."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rerail.domain.process_group import group_kind
from rerail.domain.series import FloatArray, IntArray
from rerail.errors import EvidenceError
from rerail.tools.profiles.event_decoder import event_decoder
from rerail.tools.profiles.summary import MOST_RANKS
from rerail.tools.profiles.trace import (
    ANNOTATION,
    COPY,
    CPU_OP,
    KERNEL,
    OTHER,
    PYTHON,
    RUNTIME,
    Group,
    Trace,
)  # fmt: skip
from rerail.tools.profiles.trace_json import PIECE, Decode, TraceStream

_KINDS = {
    "kernel": KERNEL, "gpu_memcpy": COPY, "gpu_memset": COPY, "memcpy": COPY, "memset": COPY,
    "cpu_op": CPU_OP, "operator": CPU_OP, "cuda_runtime": RUNTIME, "cuda_driver": RUNTIME,
    "runtime": RUNTIME, "hip_runtime": RUNTIME, "user_annotation": ANNOTATION,
    "python_function": PYTHON,
}  # fmt: skip
_IN_NAME = re.compile(r"(?:rank|worker)[-_]?(\d{1,8})(?!\d)", re.IGNORECASE)
_ELEMENT_BYTES = {
    "float": 4, "float32": 4, "int": 4, "int32": 4, "double": 8, "float64": 8, "long": 8, "int64": 8,
    "half": 2, "float16": 2, "bfloat16": 2, "byte": 1, "char": 1, "uint8": 1, "int8": 1, "bool": 1,
    "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip
_YEAR_2001_US = 1e15
_MOST_US = 1e17
_TYPES = (np.int64, np.uint8, np.float64, np.float64, np.int64, np.float64, np.int64)


class _Columns:
    """The columns while pieces arrive."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.lanes: dict[int | str | None, int] = {}
        self.kinds: dict[str | None, int] = {}
        self.groups: dict[Group, int] = {}
        self.parts: list[tuple[Any, ...]] = []

    def add(self, events: list[Any]) -> None:
        whole = [e for e in events if e.dur is not None and e.ts is not None]
        if not whole:
            return
        numbers, lanes, kinds = self.numbers, self.lanes, self.kinds
        names = [e.name for e in whole]
        for fresh in dict.fromkeys(names):
            numbers.setdefault(fresh or "", len(numbers))
        for cat in {e.cat for e in whole}.difference(kinds):
            kinds[cat] = _KINDS.get((cat or "").lower(), OTHER)
        tids = [e.tid for e in whole]
        for tid in dict.fromkeys(tids):
            lanes.setdefault(tid, len(lanes))
        name = np.array([numbers[n or ""] for n in names], dtype=np.int64)
        kind = np.array([kinds[e.cat] for e in whole], dtype=np.uint8)
        start = np.array([e.ts for e in whole], dtype=np.float64)
        took = np.array([e.dur for e in whole], dtype=np.float64)
        of = np.array([lanes[tid] for tid in tids], dtype=np.int64)
        moved = np.full(len(whole), np.nan)
        group = np.full(len(whole), -1, dtype=np.int64)
        for at in np.flatnonzero((kind == COPY) | (kind == KERNEL) | (kind == ANNOTATION)):
            event = whole[at]
            args = event.args
            if args is None:
                continue
            if args.bytes is not None:
                moved[at] = float(args.bytes)
            elif args.group_name is not None or args.elements is not None:
                moved[at] = _message_bytes(args)
                group[at] = self._group(args)
        self.parts.append((name, kind, start, took, of, moved, group))

    def _group(self, args: Any) -> int:
        label = str(args.group_desc or args.group_name or "")
        ranks = str(args.group_ranks or "")
        size = args.group_size if isinstance(args.group_size, int) else 0
        found = Group(str(args.group_name or ""), group_kind(label), size, ranks)
        return self.groups.setdefault(found, len(self.groups))

    def column(self, at: int, kind: Any) -> Any:
        parts = [part[at] for part in self.parts]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=kind)


def _message_bytes(args: Any) -> float:
    counts = [n for n in (args.elements, args.out_elements) if isinstance(n, (int, float))]
    width = _ELEMENT_BYTES.get(str(args.dtype or "").lower().split(".")[-1])
    return float(max(counts)) * width if counts and width else float("nan")


@dataclass(frozen=True, eq=False)
class TracePart:
    """The columns of some events of a file; `names`, `lanes` and `groups` are what they number.

    `head` holds the keys of the file beside its events, as far as they stand in this part.
    """

    head: dict[str, Any]
    names: list[str]
    lanes: list[int | str | None]
    groups: list[Group]
    columns: tuple[Any, ...]


def part_of(make: Callable[[Decode], TraceStream]) -> TracePart:
    """Return the columns of a stream, which is made with the decoder.

    Raises:
        EvidenceError: the file is no Kineto trace or is cut off.
    """
    stream = make(event_decoder())
    columns = _Columns()
    for events in stream.pieces():
        try:
            columns.add(events)
        except (ValueError, TypeError, OverflowError) as error:
            raise EvidenceError(
                f"{stream.path}: not a readable trace (an event holds {error})", subject=str(stream.path),
                hint="export it again with export_chrome_trace",
            ) from None  # fmt: skip
    return TracePart(
        stream.head, list(columns.numbers), list(columns.lanes), list(columns.groups),
        tuple(columns.column(at, kind) for at, kind in enumerate(_TYPES)),
    )  # fmt: skip


def read_trace(path: Path, piece: int = PIECE) -> Trace:
    """Read one file; `piece` is the number of bytes that are decoded at a time.

    Raises:
        EvidenceError: the file is no Kineto trace or is cut off.
    """
    return join_parts(path, [part_of(lambda decode: TraceStream(path, decode, piece))])


def join_parts(path: Path, parts: Sequence[TracePart]) -> Trace:
    """Return the trace of a file whose parts come in the order of the file."""
    head: dict[str, Any] = {}
    names: dict[str, int] = {}
    lanes: dict[int | str | None, int] = {}
    groups: dict[Group, int] = {}
    joined: list[list[Any]] = [[] for _ in _TYPES]
    for part in parts:
        head.update(part.head)
        name, kind, start, took, lane, moved, group = part.columns
        name = _renumbered(name, part.names, names)
        lane = _renumbered(lane, part.lanes, lanes)
        group = _renumbered(group, part.groups, groups)
        columns = (name, kind, start, took, lane, moved, group)
        for column, values in zip(joined, columns, strict=True):
            column.append(values)
    name, kind, start, took, lane, moved, group = (np.concatenate(one) for one in joined)
    keep = (np.abs(start) < _MOST_US) & (took >= 0) & (took < _MOST_US)
    info = head.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    host = head.get("host_name")
    notes = []
    if not keep.all():
        notes.append(f"{path}: {int((~keep).sum())} events with impossible times were left out")
    return Trace(
        str(path), _rank(info, path), _world(info), host if isinstance(host, str) else "",
        list(names), name[keep], kind[keep], start[keep], took[keep], lane[keep], moved[keep],
        group[keep], _named(list(groups), info), None, notes, _epoch_us(head, start[keep]),
    )  # fmt: skip


def _epoch_us(head: dict[str, Any], start: FloatArray) -> float:
    """Return what makes times Unix time: older traces hold it, newer ones count from a base."""
    base = head.get("baseTimeNanoseconds")
    if isinstance(base, (int, float)):
        return float(base) / 1e3
    return 0.0 if len(start) and start.min() > _YEAR_2001_US else float("nan")


def _renumbered(codes: IntArray, here: Sequence[Any], known: dict[Any, int]) -> IntArray:
    """Return codes of this part as codes of all parts; -1 stays."""
    to = np.array([known.setdefault(one, len(known)) for one in here] + [-1], dtype=np.int64)
    found: IntArray = to[codes]
    return found


def _rank(info: dict[str, Any], path: Path) -> int | None:
    told = info.get("rank")
    if isinstance(told, int) and 0 <= told <= MOST_RANKS:
        return told
    named = _IN_NAME.search(path.name)
    return int(named.group(1)) if named else None


def _world(info: dict[str, Any]) -> int:
    size = info.get("world_size", 0)
    return size if isinstance(size, int) and 0 <= size <= MOST_RANKS else 0


def _named(groups: list[Group], info: dict[str, Any]) -> list[Group]:
    """Return groups with what `pg_config` says of them, where the events did not."""
    rows = info.get("pg_config", [])
    known = {
        str(row.get("pg_name", "")): row
        for row in (rows if isinstance(rows, list) else [])
        if isinstance(row, dict)
    }
    out = []
    for group in groups:
        row = known.get(group.name, {})
        kind = group.kind
        if kind == "other":
            kind = group_kind(str(row.get("pg_desc", "")))
        ranks = group.ranks or str(row.get("ranks", "") or "")
        out.append(Group(group.name, kind, group.size, ranks))
    return out
