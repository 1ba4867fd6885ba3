"""Step rows of a log as numeric series, with the row that each point came from."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from rerail.cached_yaml import load_cached
from rerail.domain.series import BoolArray, FloatArray, IntArray, StepSeries
from rerail.kept_patterns import kept_pattern
from rerail.log_parsers.metrics import WEAK_FORMS
from rerail.log_parsers.mined_layouts import PATH
from rerail.log_parsers.series_files.forms import FORMS
from rerail.log_parsers.step_forms import marked
from rerail.log_parsers.step_numbers import StepRow
from rerail.log_parsers.unnamed_series import COUNTED, STEPLESS
from rerail.log_parsers.view import LogView

_MOST_STAMPED = 20_000
_MOSTLY_STAMPED = 0.8  # least share of the rows whose lines are stamped
_COARSE = 10.0  # whole seconds are averaged over as many rows as take so long
_LEAST_CLOCKED = 20  # times between lines that are needed: the first ones wait for other things
_MOST_BETWEEN = 50_000  # lines between steps that are looked at for a pause
_WEAK = WEAK_FORMS | STEPLESS


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
    pauses = _Pauses(view)
    found = []
    for (form, rank), rows in groups.items():
        if strong and form in _WEAK:
            continue
        kept = _one_per_step(rows)
        if len(kept) >= least:
            found.append(_build(view, form, rank, kept, pauses))
    return found


def _build(
    view: LogView, form: str, rank: int | None, rows: list[StepRow], pauses: _Pauses
) -> LogSeries:
    times = _column(rows, "step_time")
    rates = _column(rows, "throughput") if times is None else None
    if rates is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            times = np.where(rates > 0, 1.0 / rates, np.nan)
    stamps = _stamps(view, rows)
    steps = np.array([i if row.step is None else row.step for i, row in enumerate(rows)])
    told_steps = any(row.step is not None for row in rows)
    by_clock = _by_clock(pauses, form, rows, steps, stamps) if told_steps else None
    clock = times is None and by_clock is not None
    if times is None:
        times = by_clock
    told = _told(rows)
    name = view.name if rank is None else f"{view.name} rank {rank}"
    series = StepSeries(
        name=name,
        step=steps,
        step_time_s=times if times is not None else np.full(len(rows), np.nan),
        rank=rank,
        loss=None if form in marked("no_loss") else _column(rows, "loss"),
        grad_norm=_column(rows, "grad_norm"),
        loss_scale=_column(rows, "loss_scale"),
        time=stamps,
        learning_rate=_column(rows, "learning_rate"),
        throughput=_column(rows, "throughput"),
        steps_told=told_steps,
        reported=told if form in FORMS else None,
        left_out={column: ~named for column, named in told.items()},
        value=_column(rows, "value"),
        value_name=next((row.value_name for row in reversed(rows) if row.value_name), ""),
        epoch=_column(rows, "epoch"),
        is_training=form != COUNTED,
        unit_s=1.0 if rates is None else _seconds_of(times, by_clock),
    )
    return LogSeries(series, tuple(rows), rates is not None, clock)


def _by_clock(
    pauses: _Pauses, form: str, rows: list[StepRow], steps: IntArray, stamps: FloatArray | None
) -> FloatArray | None:
    """Return seconds per step between the stamps of the rows, None where they tell none.

    Stamps of whole seconds that are coarse against the time between two rows are taken several rows apart. Where
    the program says between two lines that it evaluates or saves, the time between them is none of a step.
    """
    if stamps is None or form in FORMS:
        return None if stamps is None else _between(steps, stamps)
    known = np.isfinite(stamps)
    if form in WEAK_FORMS or form == COUNTED or known.sum() < _MOSTLY_STAMPED * len(stamps):
        return None
    whole = bool((stamps[known] == np.floor(stamps[known])).all())
    gaps = np.diff(stamps[known])
    gaps = gaps[gaps >= 0]
    if not len(gaps) or not gaps.any():
        return None
    usual = max(float(np.median(gaps)), float(np.mean(np.minimum(gaps, 1.0))))
    fold = max(1, int(np.ceil(_COARSE / usual))) if whole else 1
    times = np.full(len(stamps), np.nan)
    times[::fold] = _between(steps[::fold], stamps[::fold])
    paused = np.cumsum(pauses.before(rows))
    at = np.arange(len(stamps))
    times[paused[at] > paused[np.maximum(0, at - fold)]] = np.nan
    return times if np.isfinite(times).sum() >= _LEAST_CLOCKED else None


@lru_cache(maxsize=1)
def _pause() -> re.Pattern[bytes]:
    return kept_pattern(load_cached(PATH)["pauses"].encode(), re.IGNORECASE)


class _Pauses:
    """Which kept lines of a file speak of other work; each is looked at once, whatever number of ranks take turns."""

    def __init__(self, view: LogView) -> None:
        self._view = view
        self._told = np.zeros(0, np.int8)
        """By place among the kept lines: 0 not looked at, 1 no, 2 yes."""

    def before(self, rows: list[StepRow]) -> BoolArray:
        """Tell for each row whether a line between the one before and it speaks of other work."""
        found = np.zeros(len(rows), dtype=np.bool_)
        numbers, left = self._view.numbers, _MOST_BETWEEN
        for at in range(1, len(rows)):
            first = bisect_right(numbers, rows[at - 1].line)
            last = bisect_left(numbers, rows[at].line)
            left -= max(0, last - first)
            if left < 0:
                break
            found[at] = first < last and self._among(first, last)
        return found

    def _among(self, first: int, last: int) -> bool:
        if not len(self._told):
            self._told = np.zeros(len(self._view.numbers), np.int8)
        told, kept, numbers = self._told[first:last], self._view.survey.kept, self._view.numbers
        for place in np.flatnonzero(told == 0).tolist():
            told[place] = 2 if _pause().search(kept[numbers[first + place]]) is not None else 1
        return bool((told == 2).any())


def _seconds_of(times: FloatArray | None, by_clock: FloatArray | None) -> float:
    """Return how many seconds one of the inverse of a rate is, by the clock; NaN without one."""
    if times is None or by_clock is None or not np.isfinite(by_clock).any():
        return float("nan")
    inverse = times[np.isfinite(times) & (times > 0)]
    return float(np.nanmedian(by_clock) / np.median(inverse)) if len(inverse) else float("nan")


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
