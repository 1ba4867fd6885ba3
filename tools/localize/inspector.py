"""NCCL and RCCL Inspector output: JSON lines with one collective of one rank each.

Shape (NCCL 2.27+, `plugins/profiler/inspector`): `header` {id, rank, n_ranks, nnodes}, `metadata`
{dump_timestamp_us, hostname, pid}, `coll_perf` {coll, coll_sn, coll_msg_size_bytes,
coll_exec_time_us, ...}. `header.rank` counts inside the communicator `header.id`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from rerail.errors import EvidenceError
from rerail.tools.localize.records import Records

_US = 1e-6


class _Row(NamedTuple):
    process: tuple[str, int]
    communicator: str
    comm_rank: int
    size: int
    op: str
    number: int
    bytes: int
    took_us: float


def looks_like_inspector(line: str) -> bool:
    """Tell whether a line is an Inspector record."""
    return '"coll_perf"' in line and '"header"' in line


def read_inspector(paths: Iterable[Path]) -> Records:
    """Read the dumps of all processes.

    Raises:
        EvidenceError: a line is not a record, naming file and line. A cut last line is noted.
    """
    records = Records("nccl inspector")
    rows: list[_Row] = []
    for path in paths:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                rows.append(_row(json.loads(line)))
            except (ValueError, KeyError, TypeError):
                if number == len(lines):
                    records.notes.append(f"{path}:{number}: the last line is cut off")
                    continue
                raise EvidenceError(
                    f"{path}:{number}: not an Inspector record", subject=str(path),
                    hint="records have header, metadata and coll_perf",
                ) from None  # fmt: skip
    if not rows:
        raise EvidenceError("no Inspector records were found", hint="NCCL_INSPECTOR_ENABLE=1")
    ranks = _global_ranks(rows)
    for process, rank in ranks.items():
        records.node[rank] = process[0]
    for row in rows:
        key = records.key(f"{row.communicator} {row.op}", "")
        records.kinds[key] = "world" if row.size == len(ranks) else "other"
        records.add(ranks[row.process], key, row.number, -1, row.took_us * _US, row.bytes)
    return records


def _row(record: dict[str, Any]) -> _Row:
    header, meta, perf = record["header"], record.get("metadata", {}), record["coll_perf"]
    return _Row(
        (str(meta.get("hostname", "")), int(meta.get("pid", header["rank"]))),
        str(header["id"]), int(header["rank"]), int(header["n_ranks"]), str(perf["coll"]),
        int(perf["coll_sn"]), int(perf.get("coll_msg_size_bytes", -1)),
        float(perf["coll_exec_time_us"]),
    )  # fmt: skip


def _global_ranks(rows: list[_Row]) -> dict[tuple[str, int], int]:
    """Number the processes by their rank in the largest communicator, which is the world's."""
    largest = max(rows, key=lambda row: row.size)
    known = {row.process: row.comm_rank for row in rows if row.communicator == largest.communicator}
    free = (n for n in range(10**9) if n not in set(known.values()))
    return {
        process: known[process] if process in known else next(free)
        for process in sorted({row.process for row in rows})
    }
