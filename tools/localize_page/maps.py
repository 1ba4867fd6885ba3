"""The maps of a page: functions by ranks, and ranks by steps, however many there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rerail.domain.series import FloatArray, IntArray
from rerail.tools.localize.findings import Finding
from rerail.tools.localize.heatmap_svg import HeatMap, fold
from rerail.tools.localize_page.functions import FunctionTimes
from rerail.tools.localize_page.grid import Grid, Line, draw
from rerail.tools.profiles.matrix import ProfileMatrix

MOST_RANKS, MOST_NAMED = 96, 24
_BANDS = (0, 1, 5, 25, 50, 75, 95, 99, 100)
_BAND_NAMES = ("least", "p1", "p5", "p25", "p50", "p75", "p95", "p99", "most")
_MOST_ROWS, _MOST_STEPS = 40, 100
_TABLE_RANKS = 12


@dataclass(frozen=True)
class TableRow:
    """One function in figures; texts are ready to print, in the order of the map's headings."""

    name: str
    work: str
    typical_s: float
    share: float
    cells: tuple[str, ...]


@dataclass(frozen=True)
class FunctionMap:
    """Functions by ranks as shapes and as a table.

    Beyond `MOST_RANKS` ranks only `named` have a column each, and the other `banded` are shown by
    quantiles of their distance, function by function.
    """

    grid: Grid
    headings: tuple[str, ...]
    table: tuple[TableRow, ...]
    ranks: int
    named: int
    banded: int
    unnamed: int


@dataclass(frozen=True)
class StepMap:
    """Ranks by steps as shapes, and the rows that stand out most in figures."""

    title: str
    grid: Grid
    row_name: str
    table: tuple[tuple[str, float, float, str], ...]
    hidden: int
    folded: int


def function_map(
    matrix: ProfileMatrix, rows: Sequence[FunctionTimes], findings: Sequence[Finding]
) -> FunctionMap:
    """Return the map of functions by ranks; cells that a finding names are outlined."""
    guilty = named_workers(matrix, findings)
    count = len(matrix.ranks)
    every = count <= MOST_RANKS
    single = np.arange(count) if every else guilty[:MOST_NAMED]
    rest = np.zeros(0, dtype=np.int64) if every else np.setdiff1d(np.arange(count), single)
    names = [str(int(rank)) for rank in matrix.ranks[single]]
    values, absent = _cells(rows, single, rest)
    columns = names + (list(_BAND_NAMES) if len(rest) else [])
    marked = _marked(matrix, rows, single, findings)
    grid = draw(
        values, [Line(row.name, row.waiting) for row in rows], columns, absent=absent,
        marked=marked, gap_before=len(names) if len(rest) and names else None,
    )  # fmt: skip
    shown = _table_columns(matrix, single, guilty)
    table = tuple(_table_row(row, single[shown], rest) for row in rows)
    headings = [f"rank {names[i]}" for i in shown.tolist()] + ["p5", "p95"]
    return FunctionMap(
        grid, tuple(headings), table, count, min(len(guilty), len(single)), len(rest),
        max(len(guilty) - len(single), 0),
    )  # fmt: skip


def named_workers(matrix: ProfileMatrix, findings: Sequence[Finding]) -> IntArray:
    """Return the numbers of the workers that findings name, those of the dearest finding first."""
    place = {int(rank): i for i, rank in enumerate(matrix.ranks)}
    seen = dict.fromkeys(place[rank] for one in findings for rank in one.workers if rank in place)
    return np.array(list(seen), dtype=np.int64)


def _cells(
    rows: Sequence[FunctionTimes], single: IntArray, rest: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Return distances (rows, columns), and 1 where a function does not run at all."""
    width = len(single) + (len(_BANDS) if len(rest) else 0)
    values, absent = np.full((len(rows), width), np.nan), np.zeros((len(rows), width))
    for r, row in enumerate(rows):
        values[r, : len(single)] = row.distance[single]
        absent[r, : len(single)] = (row.seconds[single] <= 0) & ~(row.high[single] > 0)
        if len(rest):
            known = row.distance[rest][np.isfinite(row.distance[rest])]
            if len(known):
                values[r, len(single) :] = np.percentile(known, _BANDS)
            absent[r, len(single) :] = float(not row.seconds[rest].any())
    return values, absent


def _marked(
    matrix: ProfileMatrix,
    rows: Sequence[FunctionTimes],
    single: IntArray,
    findings: Sequence[Finding],
) -> list[tuple[int, int]]:
    at = {int(rank): c for c, rank in enumerate(matrix.ranks[single])}
    line = {row.name: r for r, row in enumerate(rows)}
    return [
        (line[one.function], at[rank])
        for one in findings
        if one.function in line
        for rank in one.workers
        if rank in at
    ]


def _table_columns(matrix: ProfileMatrix, single: IntArray, guilty: IntArray) -> IntArray:
    """Return which columns the table shows: the named ranks, or else the first ones."""
    if len(guilty):
        where = np.flatnonzero(np.isin(single, guilty))
        return where[:_TABLE_RANKS]
    return np.arange(min(len(single), _TABLE_RANKS))


def _table_row(row: FunctionTimes, single: IntArray, rest: IntArray) -> TableRow:
    cells = [_percent(row.distance[w], row.seconds[w]) for w in single.tolist()]
    known = row.distance[np.isfinite(row.distance)]
    for percent in (5, 95):
        cells.append(_percent(np.percentile(known, percent), 1.0) if len(known) else "-")
    return TableRow(row.name, row.work, float(np.median(row.seconds)), row.share, tuple(cells))


def _percent(distance: float, seconds: float) -> str:
    if np.isnan(distance):
        return "no reference" if seconds > 0 else "does not run"
    return f"{100 * distance:+.0f} %"


def step_map(one: HeatMap, findings: Sequence[Finding], most_rows: int = _MOST_ROWS) -> StepMap:
    """Return a map of rows by steps: the named and the slowest rows, long axes folded by the maximum."""
    typical = np.full(len(one.ratio), -np.inf)
    seen: NDArray[np.bool_] = np.asarray(np.isfinite(one.ratio).any(axis=1))
    typical[seen] = np.nanmedian(one.ratio[seen], axis=1)
    ranks = {str(rank) for finding in findings for rank in finding.workers[:most_rows]}
    wanted = np.array([label.split(" ", 1)[0] in ranks for label in one.rows])
    order = np.lexsort((-typical, ~wanted))[:most_rows]
    chosen = np.sort(order)
    cells, size = fold(one.ratio[chosen], _MOST_STEPS, 1)
    columns = [one.columns[c * size] for c in range(cells.shape[1])]
    grid = draw(
        cells - 1.0, [Line(f"{one.row_name} {one.rows[r]}") for r in chosen], columns,
        column_name=one.column_name,
    )  # fmt: skip
    table = []
    for r in order[: min(_TABLE_RANKS, len(order))].tolist():
        if seen[r]:
            worst = int(np.nanargmax(one.ratio[r]))
            table.append(
                (one.rows[r], float(typical[r]), float(one.ratio[r, worst]), one.columns[worst])
            )
    return StepMap(one.title, grid, one.row_name, tuple(table), len(one.rows) - len(chosen), size)
