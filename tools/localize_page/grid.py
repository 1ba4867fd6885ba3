"""A heat map as shapes for a template: a path per shade, so that a map stays small."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rerail.domain.series import FloatArray, IntArray

LEVELS = (0.05, 0.10, 0.20, 0.35, 0.50)
_SPACE, _LEFT, _TOP, _TALL, _GAP = 640.0, 300.0, 64.0, 17.0, 26.0
_WIDEST = 34.0
_LONGEST_LABEL = 37
_END_OF_LABEL = 18
_MOST_TIPS, _MOST_MARKS, _MOST_COLUMN_LABELS = 250, 400, 40
_TIP_LEVEL = 2


@dataclass(frozen=True)
class Line:
    """One row of a map: its full name, and whether its time is that of waiting."""

    name: str
    waiting: bool = False


@dataclass(frozen=True)
class Label:
    """A text at a place; `full` is what was cut."""

    x: float
    y: float
    text: str
    full: str = ""


@dataclass(frozen=True)
class Box:
    """A rectangle, with what it says when a pointer is over it."""

    x: float
    y: float
    width: float
    height: float
    says: str = ""


@dataclass(frozen=True)
class Grid:
    """The shapes of one map; `fills` are pairs of a shade's class and its path."""

    width: float
    height: float
    rows: tuple[Label, ...]
    columns: tuple[Label, ...]
    headings: tuple[Label, ...]
    fills: tuple[tuple[str, str], ...]
    marks: tuple[Box, ...]
    tips: tuple[Box, ...]


def levels(distance: FloatArray) -> IntArray:
    """Return -5 to 5 for distances (0.5 is half as long again or more); NaN gives 0."""
    size: IntArray = np.searchsorted(LEVELS, np.abs(np.nan_to_num(distance)), side="right")
    return np.where(distance < 0, -size, size).astype(np.int64)


def draw(
    distance: FloatArray,
    lines: Sequence[Line],
    columns: Sequence[str],
    *,
    absent: FloatArray | None = None,
    marked: Sequence[tuple[int, int]] = (),
    column_name: str = "rank",
    gap_before: int | None = None,
) -> Grid:
    """Lay out `distance` (rows, columns); rows that wait come last, under a heading of their own.

    NaN is a cell without a reference, and where `absent` (rows, columns) is not zero nothing is drawn.
    `marked` cells are outlined. A gap is left before column `gap_before`.
    """
    wide = min(_WIDEST, _SPACE / max(len(columns), 1))
    split = next((i for i, line in enumerate(lines) if line.waiting), None)
    tops = [
        _TOP + i * _TALL + (_GAP if split is not None and i >= split else 0)
        for i in range(len(lines))
    ]
    lefts = [
        _LEFT + i * wide + (wide / 2 if gap_before is not None and i >= gap_before else 0)
        for i in range(len(columns))
    ]
    shade = levels(distance)
    paths: dict[str, list[str]] = {}
    for r, line in enumerate(lines):
        for first, last, name in _runs(distance[r], shade[r], line.waiting, absent, r, gap_before):
            width = lefts[last] + wide - lefts[first]
            paths.setdefault(name, []).append(
                f"M{lefts[first]:.4g} {tops[r]:.4g}h{width:.4g}v{_TALL:g}h-{width:.4g}z"
            )
    tips = [
        Box(
            lefts[c], tops[r], wide, _TALL,
            f"{lines[r].name}, {column_name} {columns[c]}: {100 * distance[r, c]:+.0f} %",
        )
        for r, c in _strongest(distance, shade, absent)
    ]  # fmt: skip
    marks = [Box(lefts[c], tops[r], wide, _TALL) for r, c in marked[:_MOST_MARKS]]
    every = -(-len(columns) // _MOST_COLUMN_LABELS)
    shown = [
        Label(lefts[c] + wide / 2, _TOP - 6, text)
        for c, text in enumerate(columns)
        if c % every == 0
    ]
    headings = () if split is None else (Label(8, tops[split] - 7, "waiting, and collectives"),)
    return Grid(
        max(_LEFT + _SPACE + 24, (lefts[-1] if lefts else 0) + wide + 24),
        (tops[-1] if tops else _TOP) + _TALL + 10,
        tuple(
            Label(_LEFT - 8, tops[r] + 12.5, cut(line.name), line.name)
            for r, line in enumerate(lines)
        ),
        tuple(shown), headings, tuple((name, "".join(d)) for name, d in sorted(paths.items())),
        tuple(marks), tuple(tips),
    )  # fmt: skip


def cut(name: str, most: int = _LONGEST_LABEL) -> str:
    """Return a name of at most `most` letters, its beginning and end."""
    if len(name) <= most:
        return name
    return f"{name[: most - _END_OF_LABEL - 1]}\u2026{name[-_END_OF_LABEL:]}"


def _runs(
    distance: FloatArray,
    shade: IntArray,
    waiting: bool,
    absent: FloatArray | None,
    row: int,
    gap_before: int | None,
) -> list[tuple[int, int, str]]:
    """Return (first, last, class of the shade) of neighbouring cells that look alike."""
    over, under = ("w", "v") if waiting else ("u", "d")
    out: list[tuple[int, int, str]] = []
    for c, size in enumerate(shade.tolist()):
        if absent is not None and absent[row, c]:
            continue
        name = f"{over if size > 0 else under}{abs(size)}" if size else "z"
        if np.isnan(distance[c]):
            name = "n"
        if out and out[-1][1] == c - 1 and out[-1][2] == name and c != gap_before:
            out[-1] = (out[-1][0], c, name)
        else:
            out.append((c, c, name))
    return out


def _strongest(
    distance: FloatArray, shade: IntArray, absent: FloatArray | None
) -> list[tuple[int, int]]:
    size = np.abs(np.nan_to_num(distance))
    size[np.abs(shade) < _TIP_LEVEL] = 0
    if absent is not None:
        size[absent != 0] = 0
    order = np.argsort(-size, axis=None, kind="stable")[:_MOST_TIPS]
    rows, columns = np.unravel_index(order, size.shape)
    return [(r, c) for r, c in zip(rows.tolist(), columns.tolist(), strict=True) if size[r, c] > 0]
