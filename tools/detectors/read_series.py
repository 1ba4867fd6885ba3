"""Step series from CSV or Parquet files with the columns step, step_time_s[, loss][, rank] ...

Column names of TensorBoard and common exports are understood. Files that cannot be trusted are
refused with the file, line and column; log files are read elsewhere.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from rerail.domain.series import BoolArray, FloatArray, StepSeries
from rerail.errors import EvidenceError

# Column of StepSeries -> accepted headers and the factor to its unit.
_HEADERS: dict[str, dict[str, float]] = {
    "step": {"step": 1, "iteration": 1, "iter": 1, "global_step": 1},
    "step_time_s": {
        "step_time_s": 1,
        "step_time": 1,
        "iteration_time_s": 1,
        "iter_time_s": 1,
        "dur_s": 1,
        "seconds": 1,
        "step_time_ms": 1e-3,
        "iteration_time_ms": 1e-3,
        "dur_ms": 1e-3,
    },
    "rank": {"rank": 1, "global_rank": 1},
    "loss": {"loss": 1, "lm_loss": 1, "train_loss": 1},
    "grad_norm": {"grad_norm": 1},
    "loss_scale": {"loss_scale": 1},
    "learning_rate": {"learning_rate": 1, "lr": 1},
    "tokens": {"tokens": 1, "num_tokens": 1, "global_batch_size": 1},
    "seq_len_sq": {"seq_len_sq": 1},
    "time": {"time": 1, "timestamp": 1, "wall_time": 1, "time_ms": 1e-3},
}
_EMPTY = {"", "na", "n/a", "none", "null", "-"}
_MIXED_UNITS = 300.0  # a file whose step times fall in two groups this far apart mixes units
_UNSORTED = 0.05  # share of falling steps above which a file is unsorted, not restarted


class UnknownColumnsError(EvidenceError):
    """A table whose columns are not those of `rerail detect`; another reader may know them."""


@dataclass(slots=True)
class _Rows:
    """Values of one rank, in the order of the file, with the line of each."""

    line: list[int]
    columns: dict[str, list[float]]


def read_series(path: Path, name: str | None = None) -> list[StepSeries]:
    """Return one series per rank found in a CSV or Parquet file.

    A step number that falls now and then is a restart and is kept; a file whose steps fall often
    is sorted. Of rows that repeat a step directly, the last value of each column counts.

    Raises:
        EvidenceError: the file is missing, empty, has no usable column, or a cell is wrong.
    """
    try:
        suffix = path.suffix.lower()
        columns, rows = _read_parquet(path) if suffix in (".parquet", ".pq") else _read_csv(path)
        ranks = _by_rank(path, columns, rows)
    except FileNotFoundError as error:
        raise EvidenceError(f"{path} does not exist", subject=str(path)) from error
    except OSError as error:
        raise EvidenceError(
            f"{path} cannot be read: {error.strerror}", subject=str(path), recoverable=True
        ) from error
    title = name or path.name
    if not ranks:
        raise EvidenceError(
            f"{path} has no data rows", subject=str(path), hint="write at least one step"
        )
    return [_series(path, title, rank, ranks[rank]) for rank in sorted(ranks, key=_none_first)]


def _none_first(rank: int | None) -> int:
    return -1 if rank is None else rank


def _read_csv(path: Path) -> tuple[dict[str, tuple[int, float]], Iterable[tuple[int, list[Any]]]]:
    with path.open("r", encoding="utf-8-sig", errors="replace", newline="") as handle:
        text = handle.read()
    if not text.strip():
        raise EvidenceError(f"{path} is empty", subject=str(path))
    first = text.lstrip().splitlines()[0]
    delimiter = max(",;\t", key=first.count)
    reader = csv.reader(text.splitlines(), delimiter=delimiter)
    try:
        header: list[str] = next(row for row in reader if row)
    except csv.Error as error:
        raise EvidenceError(f"{path} line 1: {error}", subject=str(path)) from error
    columns = _columns(path, header)

    def body() -> Iterator[tuple[int, list[Any]]]:
        try:
            for row in reader:
                if any(cell.strip() for cell in row):
                    yield reader.line_num, row
        except csv.Error as error:
            raise EvidenceError(
                f"{path} line {reader.line_num}: {error}", subject=str(path)
            ) from error

    return columns, body()


def _read_parquet(
    path: Path,
) -> tuple[dict[str, tuple[int, float]], Iterable[tuple[int, list[Any]]]]:
    if not path.exists():
        raise FileNotFoundError(path)
    try:
        # Imported here only: pyarrow is an extra, and heavy.
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise EvidenceError(
            f"{path}: Parquet files need pyarrow",
            subject=str(path),
            hint="pip install 'rerail[fast]', or export the table as CSV",
        ) from error
    try:
        table = parquet.read_table(path)
    except Exception as error:
        raise EvidenceError(f"{path} is not a Parquet file: {error}", subject=str(path)) from error
    columns = _columns(path, list(table.column_names))
    values = [column.to_pylist() for column in table.columns]
    return columns, ((row + 1, list(cells)) for row, cells in enumerate(zip(*values, strict=True)))


def _columns(path: Path, header: list[str]) -> dict[str, tuple[int, float]]:
    found: dict[str, tuple[int, float]] = {}
    for position, title in enumerate(header):
        key = str(title).strip().strip('"').lower().replace(" ", "_")
        for name, accepted in _HEADERS.items():
            if key not in accepted:
                continue
            if name in found:
                raise EvidenceError(
                    f"{path} line 1: columns {header[found[name][0]]!r} and {title!r} "
                    f"are both {name}",
                    subject=str(path),
                )
            found[name] = (position, accepted[key])
    if "step" not in found or not {"step_time_s", "time", "loss"} & found.keys():
        raise UnknownColumnsError(
            f"{path} line 1: need the columns step and step_time_s, found {', '.join(header)}",
            subject=str(path),
            hint="rename the columns to step,step_time_s[,loss][,rank]",
        )
    return found


def _by_rank(
    path: Path, columns: dict[str, tuple[int, float]], rows: Iterable[tuple[int, list[Any]]]
) -> dict[int | None, _Rows]:
    ranks: dict[int | None, _Rows] = {}
    names = [name for name in columns if name != "rank"]
    for line, cells in rows:
        rank: int | None = None
        if "rank" in columns:
            value = _number(path, line, "rank", columns, cells)
            if math.isfinite(value):
                rank = _whole(path, line, "rank", value)
        target = ranks.setdefault(rank, _Rows([], {name: [] for name in names}))
        target.line.append(line)
        for name in names:
            value = _number(path, line, name, columns, cells)
            if name == "step":
                value = _whole(path, line, "step", value)
            elif name == "step_time_s" and value <= 0:
                raise EvidenceError(
                    f"{path} line {line} column {name}: a step cannot take {value:g} s",
                    subject=str(path),
                )
            target.columns[name].append(value)
    return ranks


def _number(
    path: Path, line: int, name: str, columns: dict[str, tuple[int, float]], cells: list[Any]
) -> float:
    position, factor = columns[name]
    cell = cells[position] if position < len(cells) else None
    if cell is None or (isinstance(cell, str) and cell.strip().lower() in _EMPTY):
        return math.nan
    try:
        return float(cell) * factor
    except (TypeError, ValueError) as error:
        if name == "time" and (seconds := _date(cell)) is not None:
            return seconds
        raise EvidenceError(
            f"{path} line {line} column {name}: {cell!r} is not a number", subject=str(path)
        ) from error


def _date(cell: Any) -> float | None:
    """Return a date and time of ISO 8601 as seconds since the epoch, UTC where no zone is given."""
    if not isinstance(cell, str | datetime):
        return None
    try:
        at = cell if isinstance(cell, datetime) else datetime.fromisoformat(cell.strip())
    except ValueError:
        return None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _whole(path: Path, line: int, name: str, value: float) -> int:
    if not math.isfinite(value) or value != int(value) or abs(value) > 2**53:
        raise EvidenceError(
            f"{path} line {line} column {name}: {value!r} is not a whole number",
            subject=str(path),
        )
    return int(value)


def _series(path: Path, title: str, rank: int | None, rows: _Rows) -> StepSeries:
    step = np.array(rows.columns["step"], dtype=np.int64)
    columns: dict[str, Any] = {
        name: np.array(values, dtype=np.float64)
        for name, values in rows.columns.items()
        if name != "step"
    }
    lines = np.array(rows.line)
    falls = np.diff(step) < 0
    if falls.sum() > max(3, _UNSORTED * len(step)):
        order = np.argsort(step, kind="stable")
        step, lines = step[order], lines[order]
        columns = {name: values[order] for name, values in columns.items()}
    keep = np.append(np.diff(step) != 0, True)
    for values in columns.values():
        _carry(values, keep)
    step, lines = step[keep], lines[keep]
    columns = {name: values[keep] for name, values in columns.items()}
    if "step_time_s" not in columns:
        columns["step_time_s"] = _from_clock(step, columns.get("time"))
    _refuse_mixed_units(path, lines, columns["step_time_s"])
    label = title if rank is None else f"{title} rank {rank}"
    return StepSeries(label, step, rank=rank, **columns)


def _carry(values: FloatArray, keep: BoolArray) -> None:
    """Give the last of several rows of one step what only an earlier one of them says.

    Loggers write the training and the evaluation of one step on rows of their own.
    """
    for row in np.flatnonzero(~keep):
        if math.isnan(values[row + 1]):
            values[row + 1] = values[row]


def _from_clock(step: np.ndarray, time: FloatArray | None) -> FloatArray:
    """Return seconds per step from the clock at the end of each row, NaN where steps fall."""
    if time is None:
        return np.full(len(step), np.nan)
    gap = np.diff(step)
    seconds = np.diff(time)
    good = (gap > 0) & (seconds > 0)
    each = np.where(good, seconds / np.where(gap > 0, gap, 1), np.nan)
    return np.concatenate([[np.nan], each])


def _refuse_mixed_units(path: Path, lines: np.ndarray, seconds: FloatArray) -> None:
    known = np.isfinite(seconds)
    if known.sum() < 8:
        return
    logs = np.log(seconds[known])
    ordered = np.sort(logs)
    gaps = np.diff(ordered)
    widest = int(np.argmax(gaps))
    below = widest + 1
    fewest = min(below, len(ordered) - below)
    if gaps[widest] < math.log(_MIXED_UNITS) or fewest < 0.2 * len(ordered):
        return
    high = logs > (ordered[widest] + ordered[widest + 1]) / 2
    # The first row shows which unit the file began with.
    odd = ~high if high[0] else high
    line = int(lines[known][np.argmax(odd)])
    raise EvidenceError(
        f"{path} line {line} column step_time_s: step times fall in two groups a factor "
        f"{math.exp(gaps[widest]):.0f} apart, as if units were mixed",
        subject=str(path),
        hint="write all step times in seconds",
    )
