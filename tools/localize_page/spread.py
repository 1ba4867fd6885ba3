"""How one function's time is spread over the ranks, role by role, as shapes for a template."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rerail.domain.series import FloatArray, IntArray
from rerail.tools.durations import seconds
from rerail.tools.localize_page.functions import FunctionTimes
from rerail.tools.profiles.matrix import ProfileMatrix

_LEFT, _SPACE, _TOP, _TALL = 150.0, 620.0, 8.0, 30.0
_MOST_FUNCTIONS, _MOST_ROLES, _MOST_DOTS, _MOST_NAMED = 10, 5, 96, 6
_ROOM_FOR_LABEL = 34.0
_Scale = Callable[[float], float]


@dataclass(frozen=True)
class Strip:
    """The ranks of one role: x of quantiles, of single ranks, and of those that are named."""

    y: float
    role: str
    count: int
    ends: tuple[float, float]
    wide: tuple[float, float]
    half: tuple[float, float]
    middle: float
    dots: tuple[float, ...]
    named: tuple[tuple[float, str], ...]
    box: tuple[float, float] | None
    says: str


@dataclass(frozen=True)
class Spread:
    """One function over all ranks; `ticks` are pairs of x and text."""

    name: str
    work: str
    waiting: bool
    width: float
    height: float
    strips: tuple[Strip, ...]
    ticks: tuple[tuple[float, str], ...]
    hidden_roles: int


def spreads(
    matrix: ProfileMatrix, rows: Sequence[FunctionTimes], guilty: IntArray, named: set[str]
) -> list[Spread]:
    """Return the distributions of the named functions, then of those with the largest share."""
    rows = [row for row in rows if row.work != "idle"]
    order = sorted(rows, key=lambda one: (one.name not in named, not one.whole, -one.share))
    return [_spread(matrix, row, guilty) for row in order[:_MOST_FUNCTIONS]]


def _spread(matrix: ProfileMatrix, row: FunctionTimes, guilty: IntArray) -> Spread:
    roles = [r for r in range(len(matrix.role_names)) if row.seconds[matrix.role == r].any()]
    with_named = {int(r) for r in matrix.role[guilty]}
    roles.sort(key=lambda r: (r not in with_named, r))
    shown = sorted(roles[:_MOST_ROLES])
    values = row.seconds[np.isin(matrix.role, shown)]
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    healthy = np.concatenate([row.low, row.high])[np.tile(np.isin(matrix.role, shown), 2)]
    if np.isfinite(healthy).any():
        low, high = min(low, float(np.nanmin(healthy))), max(high, float(np.nanmax(healthy)))
    room = max(high - low, 0.02 * high, 1e-9)
    low, high = max(0.0, low - 0.05 * room), high + 0.05 * room
    scale = _SPACE / (high - low)

    def x(value: float) -> float:
        return round(_LEFT + (value - low) * scale, 1)

    strips = tuple(
        _strip(matrix, row, role, _TOP + i * _TALL, guilty, x) for i, role in enumerate(shown)
    )
    ticks = tuple((x(value), seconds(value)) for value in np.linspace(low, high, 4)[1:-1].tolist())
    bounds = ((x(low), seconds(low)), *ticks, (x(high), seconds(high)))
    return Spread(
        row.name, row.work, row.waiting, _LEFT + _SPACE + 60, _TOP + len(shown) * _TALL + 22,
        strips, bounds, len(roles) - len(shown),
    )  # fmt: skip


def _strip(
    matrix: ProfileMatrix,
    row: FunctionTimes,
    role: int,
    y: float,
    guilty: IntArray,
    x: _Scale,
) -> Strip:
    mine = np.flatnonzero(matrix.role == role)
    values: FloatArray = row.seconds[mine]
    points = np.percentile(values, (0, 5, 25, 50, 75, 95, 100)).tolist()
    least, p5, p25, middle, p75, p95, most = (x(value) for value in points)
    named = [int(w) for w in guilty.tolist() if matrix.role[w] == role][:_MOST_NAMED]
    low, high = float(row.low[mine[0]]), float(row.high[mine[0]])
    box = (x(low), x(high)) if np.isfinite(high) and high > low else None
    name = matrix.role_names[role] or "all"
    said = (
        f"{name}, {len(mine)} ranks: least {seconds(points[0])}, middle half "
        f"{seconds(points[2])} to {seconds(points[4])}, median {seconds(points[3])}, "
        f"most {seconds(points[6])}"
    )
    for w in named:
        said += f"; rank {int(matrix.ranks[w])} {seconds(float(row.seconds[w]))}"
    if box is not None:
        said += f"; {seconds(low)} to {seconds(high)} in the healthy windows"
    dots = tuple(sorted({x(v) for v in values.tolist()})) if len(mine) <= _MOST_DOTS else ()
    return Strip(
        y, name, len(mine), (least, most), (p5, p95), (p25, p75), middle, dots,
        _labels(matrix, row, named, x), box, said,
    )  # fmt: skip


def _labels(
    matrix: ProfileMatrix, row: FunctionTimes, named: list[int], x: _Scale
) -> tuple[tuple[float, str], ...]:
    """Return the marks of named ranks; a label that would cover another is left out."""
    out: list[tuple[float, str]] = []
    free = -np.inf
    for place, rank in sorted((x(float(row.seconds[w])), int(matrix.ranks[w])) for w in named):
        out.append((place, str(rank) if place >= free else ""))
        if place >= free:
            free = place + _ROOM_FOR_LABEL
    return tuple(out)
