"""Which collectives each rank called and when, for finding iterations without framework lines.

Three sources: NCCL_DEBUG=INFO with NCCL_DEBUG_SUBSYS=COLL (`host:pid:tid [dev] NCCL INFO AllReduce:
opCount 1a sendbuff .. count N datatype 9 op 0 root 0 comm 0x.. [nranks=8] stream ..`), NCCL
Inspector JSON lines, and flight-recorder dumps. One call's symbol is its operation, communicator
and size.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from rerail.domain.process_group import group_kind
from rerail.domain.series import FloatArray, IntArray
from rerail.lazy_patterns import lazy
from rerail.log_parsers.flight_recorder.model import Dump
from rerail.log_parsers.timestamps import find_stamp, year_in

_CALL = lazy(
    rb"(?P<process>[\w.-]+:\d+):\d+ \[\d+\] NCCL INFO "
    rb"(?P<op>AllReduce|AllGather|ReduceScatter|Broadcast|Reduce|Send|Recv|AlltoAll|SendRecv): "
    rb"opCount \S+ .*?count (?P<count>\d+) datatype (?P<type>\d+).*?comm (?P<comm>0x[0-9a-f]+)"
    rb"(?: \[nranks=(?P<nranks>\d+)\])?"
)
_PIPELINE = ("Send", "Recv", "SendRecv")


@dataclass
class CallLog:
    """The calls of one process in order: symbols, times in seconds (NaN unknown), symbol kinds."""

    name: str
    symbols: list[int] = field(default_factory=list)
    times_s: list[float] = field(default_factory=list)
    book: dict[tuple[str, str], int] = field(default_factory=dict)

    def add(self, kind: str, what: str, time_s: float) -> None:
        """Append one call; the kind of its group may be empty."""
        self.symbols.append(self.book.setdefault((kind, what), len(self.book)))
        self.times_s.append(time_s)

    def arrays(self) -> tuple[IntArray, FloatArray, list[str] | None]:
        """Return (symbols, times, kinds); kinds is None unless an outer group is known."""
        kinds = [kind for kind, _ in self.book]
        known = any(kind in ("dp", "world") for kind in kinds)
        return (
            np.array(self.symbols, dtype=np.int64),
            np.array(self.times_s, dtype=np.float64),
            kinds if known else None,
        )


def has_nccl_calls(head: bytes) -> bool:
    """Tell whether a log holds COLL lines."""
    return b"NCCL INFO" in head and _CALL.search(head) is not None


def nccl_call_logs(lines: Iterable[bytes], default_year: int = 1970) -> list[CallLog]:
    """Return the calls of each process in a log; the largest communicators count as the world."""
    rows: dict[str, list[tuple[bytes, bytes, bytes, int, float]]] = defaultdict(list)
    year = default_year
    for line in lines:
        match = _CALL.search(line)
        if match is None:
            continue
        head = line[:200].decode("utf-8", errors="replace")
        year = year_in(head) or year
        stamp = find_stamp(head, year=year)
        ranks = int(match["nranks"] or 0)
        what = match["op"] + b" " + match["count"] + b" " + match["type"]
        rows[match["process"].decode()].append(
            (match["op"], what, match["comm"], ranks, stamp.seconds if stamp else np.nan)
        )
    logs = []
    for process, calls in rows.items():
        log = CallLog(process)
        most = max(ranks for *_, ranks, _ in calls)
        for op, what, comm, ranks, time_s in calls:
            if op.decode() in _PIPELINE:
                kind = "pp"
            else:
                kind = "world" if ranks == most > 0 else ""
            log.add(kind, f"{what.decode()} {comm.decode()}", time_s)
        logs.append(log)
    return logs


def inspector_call_logs(path: Path) -> list[CallLog]:
    """Return the calls of each process in an NCCL Inspector file; lines that are cut are left out."""
    logs: dict[str, CallLog] = {}
    with path.open("rb") as stream:
        for line in stream:
            try:
                row = json.loads(line)
                header, meta, perf = row["header"], row["metadata"], row["coll_perf"]
                name = f"{meta.get('hostname', '')}:{meta.get('pid', header['rank'])}"
                what = f"{perf['coll']} {perf.get('coll_msg_size_bytes')} {header['id']}"
                time_s = float(meta["dump_timestamp_us"]) * 1e-6
            except (ValueError, KeyError, TypeError):
                continue
            logs.setdefault(name, CallLog(name)).add("", what, time_s)
    return list(logs.values())


def recorder_call_log(dump: Dump) -> CallLog:
    """Return the calls that a flight-recorder dump holds, by the time of their creation."""
    log = CallLog(f"rank {dump.rank}")
    for entry in sorted(dump.entries, key=lambda e: (e.created_ns or 0, e.index)):
        kind = "pp" if entry.is_p2p else group_kind(entry.description or entry.group)
        time_s = entry.created_ns * 1e-9 if entry.created_ns else np.nan
        log.add(kind, f"{entry.op} {entry.input_sizes} {entry.group}", time_s)
    return log
