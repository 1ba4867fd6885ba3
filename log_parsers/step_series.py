"""Step rows of a log as numeric series, with the row that each point came from."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from rerail.domain.series import BoolArray, FloatArray, IntArray, StepSeries
from rerail.log_parsers.metrics import WEAK_FORMS
from rerail.log_parsers.series_files.forms import FORMS
from rerail.log_parsers.step_numbers import StepRow
from rerail.log_parsers.unnamed_series import COUNTED
from rerail.log_parsers.view import LogView

_MOST_STAMPED = 20_000
_WEAK = WEAK_FORMS | {COUNTED}


@dataclass(frozen=True, slots=True)
class LogSeries:
    """One series with its rows; point i of the series stands on line `rows[i].line`.

    `from_rate` tells that the step times are the inverse of a printed rate, so that only their
    ratios mean something; `from_clock` that they are the time between two entries of a file, the
    pauses for evaluation and checkpoints included.
    """

    series: StepSeries
    rows: tuple[StepRow, ...]
    from_rate: bool
    from_clock: bool = False


def series_of(view: LogView, *, least: int = 5) -> list[LogSeries]:
    """Return one series per form of step line and rank, of at least `least` steps each.

    Progress bars, evaluation lines and counts that no word calls steps count only where nothing better is printed.
    """
    groups: dict[tuple[str, int | None], list[StepRow]] = defaultdict(list)
    for row in (*view.survey.steps, *view.survey.counted):
        groups[(row.form, row.rank)].append(row)
    strong = any(form not in _WEAK for form, _ in groups)
    found = []
    for (form, rank), rows in groups.items():
        if strong and form in _WEAK:
            continue
        kept = _one_per_step(rows)
        if len(kept) >= least:
            found.append(_build(view, form, rank, kept))
    return found


def _build(view: LogView, form: str, rank: int | None, rows: list[StepRow]) -> LogSeries:
    times = _column(rows, "step_time")
    rates = _column(rows, "throughput") if times is None else None
    if rates is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            times = np.where(rates > 0, 1.0 / rates, np.nan)
    stamps = _stamps(view, rows)
    clock = times is None and any(row.time is not None for row in rows)
    steps = np.array([i if row.step is None else row.step for i, row in enumerate(rows)])
    if clock and stamps is not None:
        times = _between(steps, stamps)
    told = _told(rows)
    name = view.name if rank is None else f"{view.name} rank {rank}"
    series = StepSeries(
        name=name,
        step=steps,
        step_time_s=times if times is not None else np.full(len(rows), np.nan),
        rank=rank,
        loss=None if form == "hf_eval" else _column(rows, "loss"),
        grad_norm=_column(rows, "grad_norm"),
        loss_scale=_column(rows, "loss_scale"),
        time=stamps,
        learning_rate=_column(rows, "learning_rate"),
        throughput=_column(rows, "throughput"),
        steps_told=any(row.step is not None for row in rows),
        reported=told if form in FORMS else None,
        left_out={column: ~named for column, named in told.items()},
        value=_column(rows, "value"),
        value_name=next((row.value_name for row in reversed(rows) if row.value_name), ""),
    )
    return LogSeries(series, tuple(rows), rates is not None, clock)


def _told(rows: list[StepRow]) -> dict[str, BoolArray]:
    """Return which values each row names; one that is left out is not one that is no number."""
    return {
        name: np.array([getattr(row, name) is not None for row in rows])
        for name in ("loss", "grad_norm", "value")
    }


def _between(steps: IntArray, stamps: FloatArray) -> FloatArray:
    """Return seconds per step from the clock at the end of each row, NaN where steps or clock go back."""
    gap, seconds = np.diff(steps), np.diff(stamps)
    good = (gap > 0) & (seconds > 0)
    each = np.where(good, seconds / np.where(good, gap, 1), np.nan)
    return np.concatenate([[np.nan], each])


def _column(rows: list[StepRow], name: str) -> FloatArray | None:
    values = [getattr(row, name) for row in rows]
    if all(value is None for value in values):
        return None
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _one_per_step(rows: list[StepRow]) -> list[StepRow]:
    """Several ranks or lines may print one step; the first of each run of equal steps stands."""
    kept: list[StepRow] = []
    for row in rows:
        if kept and row.step is not None and kept[-1].step == row.step:
            continue
        kept.append(row)
    return kept


def _stamps(view: LogView, rows: list[StepRow]) -> FloatArray | None:
    if rows[0].time is not None:
        return np.array([np.nan if row.time is None else row.time for row in rows])
    if len(rows) > _MOST_STAMPED:
        return None
    times = [np.nan if (told := view.wall_time(row.line)) is None else told for row in rows]
    stamps = np.array(times, dtype=np.float64)
    return None if np.isnan(stamps).all() else stamps
