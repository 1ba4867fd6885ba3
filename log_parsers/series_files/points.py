"""Points of named series, and the step rows that they make."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from rerail.domain.series import BoolArray, FloatArray, IntArray
from rerail.log_parsers.metrics import MAX_ROWS
from rerail.log_parsers.series_files.names import choose
from rerail.log_parsers.step_numbers import StepRow

MOST_POINTS = 1_000_000  # values kept of one name; 32 bytes each
_MOST_NAMES = 64
_ANCHORS = ("loss", "step_time", "throughput", "grad_norm")
_VALUES = (
    "loss", "step_time", "grad_norm", "loss_scale", "throughput", "epoch", "data_time", "learning_rate",
)  # fmt: skip


@dataclass(slots=True)
class _Column:
    line: array[int] = field(default_factory=lambda: array("q"))
    step: array[int] = field(default_factory=lambda: array("q"))
    value: array[float] = field(default_factory=lambda: array("d"))
    time: array[float] = field(default_factory=lambda: array("d"))


@dataclass(frozen=True, slots=True)
class _Arrays:
    line: IntArray
    step: IntArray
    value: FloatArray
    time: FloatArray


class Points:
    """Collects (line, step, value, time) by name, in the order of writing; only names with a meaning.

    `line` is the place in the file (a line, or the number of a record), `time` seconds since the epoch
    or NaN. A program that began again at an older step says so with `purge`.
    """

    def __init__(self) -> None:
        self._columns: dict[str, _Column] = {}
        self._purges: list[tuple[int, int]] = []
        self.full = False

    def add(self, name: str, line: int, step: int, value: float, time: float) -> None:
        """Take one point; past `MOST_POINTS` of a name, or past 64 names, it is left out and `full` set."""
        column = self._columns.get(name)
        if column is None:
            if len(self._columns) >= _MOST_NAMES:
                self.full = True
                return
            column = self._columns[name] = _Column()
        if len(column.line) >= MOST_POINTS:
            self.full = True
            return
        column.line.append(line)
        column.step.append(step)
        column.value.append(value)
        column.time.append(time)

    def append(self, later: Points, lines: int) -> None:
        """Add the points of a later file of the same run, whose lines count on from `lines`."""
        for name, column in later._columns.items():
            for line, step, value, time in zip(
                column.line, column.step, column.value, column.time, strict=True
            ):
                self.add(name, lines + line, step, value, time)
        self._purges += [(lines + line, step) for line, step in later._purges]
        self.full = self.full or later.full

    def purge(self, line: int, step: int) -> None:
        """Points in front of `line` whose step is `step` or later were written anew."""
        self._purges.append((line, step))

    def names(self) -> list[tuple[str, int]]:
        """Return each name with the number of its values."""
        return [(name, len(column.line)) for name, column in self._columns.items()]

    def rows(self, form: str) -> list[StepRow]:
        """Return one row per value of the loss, or where there is none of the step time or the rate.

        The other numbers of a row are those of the same step; of the learning rate, the last one known.
        """
        chosen = choose(self.names())
        arrays = {
            meaning: self._arrays(*chosen[meaning]) for meaning in _VALUES if meaning in chosen
        }
        anchor = next(
            (arrays[name] for name in _ANCHORS if name in arrays and len(arrays[name].line)), None
        )
        if anchor is None:
            return []
        picked = _thinned(anchor)
        # Where the steps fall the program began again: a step of before is another one.
        falls = anchor.line[1:][np.diff(anchor.step) < 0].tolist()
        columns = {
            name: _lookup(one, falls, last_known=name == "learning_rate")
            for name, one in arrays.items()
        }
        rows = []
        for at in picked:
            line, step = int(anchor.line[at]), int(anchor.step[at])
            time = float(anchor.time[at])
            row = StepRow(line, form, step, time=time if time == time else None)
            key = bisect_right(falls, line)
            for name, found in columns.items():
                setattr(
                    row,
                    name,
                    float(anchor.value[at]) if arrays[name] is anchor else found(key, step),
                )
            rows.append(row)
        return rows

    def _arrays(self, name: str, factor: float) -> _Arrays:
        column = self._columns[name]
        line = np.array(column.line, dtype=np.int64)
        step = np.array(column.step, dtype=np.int64)
        kept: BoolArray = np.ones(len(line), dtype=np.bool_)
        for before, since in self._purges:
            kept &= (line >= before) | (step < since)
        # A name that is written twice for one step (by two loggers, say) counts once.
        rows = np.flatnonzero(kept)
        kept[rows[1:][np.diff(step[rows]) == 0]] = False
        value = np.array(column.value, dtype=np.float64) * factor
        return _Arrays(line[kept], step[kept], value[kept], np.array(column.time)[kept])


def _thinned(anchor: _Arrays) -> list[int]:
    """Return which rows to keep: all, or evenly as many as are of use, and every one that is no number."""
    count = len(anchor.line)
    if count <= MAX_ROWS:
        return list(range(count))
    kept = np.zeros(count, dtype=np.bool_)
    kept[:: -(-count // MAX_ROWS)] = True
    kept[-1] = True
    odd = np.flatnonzero(~np.isfinite(anchor.value))
    kept[odd[:MAX_ROWS]] = True
    picked: list[int] = np.flatnonzero(kept).tolist()
    return picked


def _lookup(
    one: _Arrays, falls: list[int], *, last_known: bool
) -> Callable[[int, int], float | None]:
    keys = [
        (bisect_right(falls, line), step)
        for line, step in zip(one.line.tolist(), one.step.tolist(), strict=True)
    ]
    values = one.value.tolist()
    known = dict(zip(keys, values, strict=True))
    if not last_known:
        return lambda run, step: known.get((run, step))
    ordered = sorted(known)

    def last(run: int, step: int) -> float | None:
        at = bisect_right(ordered, (run, step))
        return known[ordered[at - 1]] if at and ordered[at - 1][0] == run else None

    return last
