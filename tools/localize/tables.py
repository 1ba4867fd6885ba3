"""CSV and Parquet tables of collectives or of compute times per rank and step.

Collectives: `rank, pg (or group), seq, dur_us|dur_ms|dur_s` and, where known, `step, pg_kind,
bytes, stage, node`. Compute: `rank, step, self_ms|compute_s|...` and `stage, node`. Both kinds of
rows may stand in one table: a row without `seq` is a compute row.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from rerail.errors import EvidenceError
from rerail.tools.localize.records import Records

_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "ns": 1e-9}
_DURATION = [(f"{stem}_{unit}", unit) for stem in ("dur", "duration") for unit in _UNITS]
_SELF = [(f"{stem}_{unit}", unit) for stem in ("self", "compute") for unit in _UNITS]
_MIXED_UNITS = 300.0  # no two devices of one job are this far apart


def looks_like_times(columns: Iterable[str]) -> bool:
    """Tell whether the columns are those of collectives or of compute times per rank."""
    names = {name.strip().lower() for name in columns}
    duration = any(name in names for name, _ in _DURATION)
    return "rank" in names and (
        ("seq" in names and duration) or any(name in names for name, _ in _SELF)
    )


def read_times(path: Path) -> Records:
    """Read one table.

    Raises:
        EvidenceError: a column is missing or a value is no number, naming file and line.
    """
    header, rows = _rows(path)
    if not looks_like_times(header):
        raise EvidenceError(
            f"{path}: no columns of collectives or compute times", subject=str(path),
            hint="rank,pg,seq,dur_us[,step,pg_kind,stage,node] or rank,step,self_ms[,stage,node]",
        )  # fmt: skip
    records = Records(str(path))
    duration = next(((n, _UNITS[u]) for n, u in _DURATION if n in header), None)
    own = next(((n, _UNITS[u]) for n, u in _SELF if n in header), None)
    first_line: dict[int, int] = {}
    for line, row in rows:
        rank = int(_number(path, line, row, "rank"))
        if row.get("stage") not in (None, ""):
            records.role[rank] = f"{float(str(row['stage'])):09.0f}" if _is_number(
                row["stage"]
            ) else str(row["stage"])  # fmt: skip
        if row.get("node") not in (None, ""):
            records.node[rank] = str(row["node"])
        if own and row.get(own[0]) not in (None, ""):
            records.self_s[rank].append(_time(path, line, row, *own))
            first_line.setdefault(rank, line)
        if duration and row.get("seq") not in (None, "") and row.get(duration[0]) not in (None, ""):
            name = str(row.get("pg", row.get("group", row.get("pg_id", "0"))))
            key = records.key(name, str(row.get("pg_kind", row.get("kind", "")) or ""))
            step = (
                int(_number(path, line, row, "step")) if row.get("step") not in (None, "") else -1
            )
            size = int(_number(path, line, row, "bytes")) if row.get("bytes") else -1
            records.add(
                rank, key, int(_number(path, line, row, "seq")), step,
                _time(path, line, row, *duration), size,
            )  # fmt: skip
    if not records.rank and not records.self_s:
        raise EvidenceError(f"{path}: the table has no rows", subject=str(path))
    _refuse_mixed_units(path, records.self_s, first_line)
    return records


def _refuse_mixed_units(
    path: Path, self_s: dict[int, list[float]], first_line: dict[int, int]
) -> None:
    """Refuse ranks that differ as no two devices do; which rank is written otherwise is named."""
    typical = {rank: float(np.median(times)) for rank, times in self_s.items()}
    typical = {rank: time for rank, time in typical.items() if time > 0}
    if len(typical) < 3:
        return
    middle = float(np.median(list(typical.values())))
    for rank, time in sorted(typical.items(), key=lambda one: first_line[one[0]]):
        ratio = max(time, middle) / min(time, middle)
        if ratio >= _MIXED_UNITS:
            raise EvidenceError(
                f"{path}:{first_line[rank]}: rank {rank} computes {time:g} s a step and the typical "
                f"rank {middle:g} s, a factor {ratio:.0f}, as if units were mixed",
                subject=str(path),
                hint="write the times of all ranks in one unit",
            )


def _rows(path: Path) -> tuple[list[str], list[tuple[int, dict[str, Any]]]]:
    if path.suffix.lower() in (".parquet", ".pq"):
        import pyarrow.parquet as parquet

        table = parquet.read_table(path)
        columns = {name.lower(): table.column(name).to_pylist() for name in table.column_names}
        count = table.num_rows
        return list(columns), [
            (i + 1, {name: values[i] for name, values in columns.items()}) for i in range(count)
        ]
    with path.open(newline="", encoding="utf-8", errors="replace") as stream:
        reader = csv.DictReader(stream, delimiter="\t" if path.suffix == ".tsv" else ",")
        header = [str(name or "").strip().lower() for name in reader.fieldnames or []]
        reader.fieldnames = header
        return header, [(reader.line_num, dict(row)) for row in reader]


def _is_number(value: object) -> bool:
    try:
        float(str(value))
    except ValueError:
        return False
    return True


def _number(path: Path, line: int, row: dict[str, Any], name: str) -> float:
    value = row.get(name)
    if not _is_number(value):
        raise EvidenceError(
            f"{path}:{line}: {name} is {value!r}, a number is expected", subject=str(path),
            hint="correct the line or leave the cell empty",
        )  # fmt: skip
    return float(str(value))


def _time(path: Path, line: int, row: dict[str, Any], name: str, unit: float) -> float:
    value = _number(path, line, row, name) * unit
    if not 0 <= value < 1e7:
        raise EvidenceError(
            f"{path}:{line}: {name} is {row[name]}, a time of zero or more is expected",
            subject=str(path), hint="correct the line or leave the cell empty",
        )  # fmt: skip
    return value
