"""CSV files that loggers write: a column per name, a cell only where something was logged.

Lightning's CSVLogger writes training and validation on rows of their own
(https://github.com/Lightning-AI/pytorch-lightning/blob/master/src/lightning/fabric/loggers/csv_logs.py);
exports of W&B and of Composer's metrics have the same form.
"""

from __future__ import annotations

import csv
import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rerail.log_parsers.series_files.names import Meaning, meaning_of, run_of

if TYPE_CHECKING:
    from rerail.log_parsers.series_files.points import Points

_MOST_COLUMNS = 4_096
_EMPTY = frozenset({"", "na", "n/a", "none", "null", "-"})
_USEFUL = frozenset({"loss", "step_time", "throughput", "grad_norm"})
_TOLD = 3


def header_of(head: bytes) -> list[str] | None:
    """Return the columns of a logger's CSV file, given its first bytes; None for any other file."""
    first = head.lstrip(b"\xef\xbb\xbf").split(b"\n", 1)[0]
    if not first.strip() or b"\0" in first:
        return None
    columns = _cells(first.decode("utf-8", "replace"))
    if len(columns) > _MOST_COLUMNS:
        return None
    known = {one.meaning for name in columns if (one := meaning_of(name)) is not None}
    return columns if "step" in known and known & _USEFUL else None


def read_metrics_csv(data: bytes, points: Points) -> list[str]:
    """Add the cells of a CSV file to `points`, and return what is damaged, by line."""
    columns = header_of(data[: 1 << 20]) or []
    delimiter = _delimiter(data.split(b"\n", 1)[0].decode("utf-8", "replace"))
    meanings = [meaning_of(name) for name in columns]
    wrong = _one_run(columns, meanings)
    # The preferred name of the step, as `choose` would take it.
    step_at = min(
        (at for at, one in enumerate(meanings) if one is not None and one.meaning == "step"),
        key=lambda at: _preference(columns[at]),
        default=0,
    )
    time_at = next((at for at, one in enumerate(meanings) if one and one.meaning == "time"), None)
    rows = data.decode("utf-8-sig", "replace").split("\n")
    for line, text in enumerate(rows[1:], 2):
        if not text.strip():
            continue
        cells = _cells(text, delimiter)
        if cells == columns:
            continue  # a logger that was started again writes its header again
        step = _number(cells[step_at]) if step_at < len(cells) else None
        if step is None or not math.isfinite(step) or abs(step) > 1 << 53 or step != int(step):
            if (
                step_at < len(cells)
                and cells[step_at].strip().lower() not in _EMPTY
                and line < len(rows)
            ):
                wrong.append(
                    f"line {line} column {columns[step_at]}: {cells[step_at][:40]!r} is no step"
                )
            continue
        time = _time(cells[time_at]) if time_at is not None and time_at < len(cells) else math.nan
        _row(cells, columns, meanings, points, line, int(step), time)
    if len(wrong) > _TOLD:
        wrong[_TOLD:] = [f"and {len(wrong) - _TOLD} more lines without a step"]
    return wrong


def _one_run(columns: list[str], meanings: list[Meaning | None]) -> list[str]:
    """Leave the columns of all runs but the first without a meaning, and say so."""
    runs = [
        run_of(name) if one is not None else "" for name, one in zip(columns, meanings, strict=True)
    ]
    known = list(dict.fromkeys(filter(None, runs)))
    for at, run in enumerate(runs):
        if run and run != known[0]:
            meanings[at] = None
    return [f"it holds {len(known)} runs: only {known[0]!r} was read"] if len(known) > 1 else []


def _row(
    cells: list[str], columns: list[str], meanings: list[Meaning | None],
    points: Points, line: int, step: int, time: float,
) -> None:  # fmt: skip
    for name, one, cell in zip(columns, meanings, cells, strict=False):
        if one is None or one.meaning in ("step", "time"):
            continue
        value = _number(cell)
        if value is not None:
            points.add(name, line, step, value, time)


def _preference(name: str) -> tuple[int, str]:
    plain = name.strip().strip('"').lower()
    order = ("step", "global_step", "trainer/global_step", "_step", "iteration", "iter")
    return (order.index(plain) if plain in order else len(order), plain)


def _delimiter(first: str) -> str:
    return max(",;\t", key=first.count)


def _cells(text: str, delimiter: str | None = None) -> list[str]:
    try:
        return next(csv.reader([text.rstrip("\r")], delimiter=delimiter or _delimiter(text)), [])
    except csv.Error:
        return []


def _number(cell: str) -> float | None:
    if cell.strip().lower() in _EMPTY:
        return None
    try:
        return float(cell)
    except ValueError:
        return None


def _time(cell: str) -> float:
    number = _number(cell)
    if number is not None:
        return number
    try:
        at = datetime.fromisoformat(cell.strip())
    except ValueError:
        return math.nan
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
