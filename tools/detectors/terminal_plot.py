"""A step series as text for the terminal, with slow phases marked; ASCII only."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from rerail.domain.series import StepSeries
from rerail.tools.detectors.events import SeriesReport


def render(series: StepSeries, report: SeriesReport, width: int = 78, height: int = 12) -> str:
    """Return a plot of step times: one column per bucket (median), `#` where a phase is slow.

    Below the plot a line marks onsets with `^`, reliefs with `v` and other events with `!`.
    """
    times = np.where(series.step_time_s > 0, series.step_time_s, np.nan)
    rows = np.flatnonzero(np.isfinite(times))
    if len(rows) == 0 or width < 20:
        return ""
    axis = 10
    columns = min(width - axis - 1, len(rows))
    edges = np.linspace(0, len(rows), columns + 1).astype(int)
    buckets = [rows[a:b] for a, b in pairwise(edges)]
    level = np.array([float(np.median(times[part])) for part in buckets])
    slow = np.zeros(len(series), dtype=bool)
    for item in report.episodes:
        slow[item.first : item.last] = True
    marked = [bool(slow[part].mean() >= 0.5) for part in buckets]
    low, high = _limits(level)
    scale = (height - 1) / (high - low)
    grid = [[" "] * columns for _ in range(height)]
    for column, value in enumerate(level):
        top = round((min(max(value, low), high) - low) * scale)
        grid[height - 1 - top][column] = "#" if marked[column] else "*"
        if marked[column]:
            for below in range(height - top, height):
                grid[below][column] = ":"
    seconds = series.unit_s if np.isfinite(series.unit_s) else 1.0
    unit = "s" if np.isfinite(series.unit_s) else " "
    lines = []
    for number, line in enumerate(grid):
        at = high - number / scale
        label = f"{at * seconds:8.3g} {unit}" if number in (0, height // 2, height - 1) else ""
        lines.append(f"{label:>{axis}}|{''.join(line)}".rstrip())
    lines.append(" " * axis + "+" + "-" * columns)
    marks = _marks(report, buckets, columns)
    if marks.strip():
        lines.append(" " * (axis + 1) + marks.rstrip())
    first, last = f"step {int(series.step[rows[0]])}", f"{int(series.step[rows[-1]])}"
    gap = max(1, columns - len(first) - len(last))
    lines.append(" " * (axis + 1) + first + " " * gap + last)
    return "\n".join(lines)


def _limits(level: np.ndarray) -> tuple[float, float]:
    low, high = float(level.min()), float(level.max())
    # One checkpoint of a minute must not flatten everything else.
    inner = float(np.quantile(level, 0.98))
    if high > 3 * inner:
        high = 1.5 * inner
    margin = 0.05 * (high - low) or 0.05 * max(abs(high), 1e-9)
    return max(0.0, low - margin), high + margin


def _marks(report: SeriesReport, buckets: list[np.ndarray], columns: int) -> str:
    starts = np.array([part[0] for part in buckets])
    line = [" "] * columns
    for event in report.events:
        if event.index < 0:
            continue
        column = max(0, int(np.searchsorted(starts, event.index, side="right")) - 1)
        kind = event.kind.value
        sign = "^" if kind in ("slow_onset", "creep") else "v" if kind == "slow_relief" else "!"
        line[column] = sign
    return "".join(line)
