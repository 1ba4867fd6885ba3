"""A rank-by-step heat map as SVG: how much longer than its like each rank took in each step."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

import numpy as np

from rerail.domain.series import FloatArray

_WIDTH, _LEFT, _TOP, _BOTTOM = 960, 110, 46, 40
_MOST_ROWS, _MOST_COLUMNS = 256, 240
_HOT, _COLD = (209, 73, 91), (36, 84, 138)


@dataclass(frozen=True, eq=False)
class HeatMap:
    """`ratio` (rows, columns): 1 is like the others; NaN is not known. Labels by row and column."""

    title: str
    ratio: FloatArray
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    row_name: str = "rank"
    column_name: str = "step"


def render_heatmap(maps: list[HeatMap]) -> str:
    """Return one SVG document; long axes are folded by the maximum, so that no hot cell is lost."""
    parts, y = [], 0
    for one in maps:
        body, height = _panel(one, y)
        parts.append(body)
        y += height
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{max(y, 1)}" '
            f'viewBox="0 0 {_WIDTH} {max(y, 1)}" font-family="sans-serif" font-size="12">',
            f'<rect width="{_WIDTH}" height="{max(y, 1)}" fill="#ffffff"/>',
            *parts,
            "</svg>\n",
        ]
    )


def fold(values: FloatArray, most: int, axis: int) -> tuple[FloatArray, int]:
    """Fold an axis to at most `most` cells by the maximum; return them and how many went into one."""
    count = values.shape[axis]
    size = -(-count // most)
    if size == 1:
        return values, 1
    starts = np.arange(0, count, size)
    folded: FloatArray = np.fmax.reduceat(values, starts, axis=axis)
    return folded, size


def _colour(ratio: float) -> str:
    if ratio != ratio:
        return "#dddddd"
    strength = min(1.0, abs(np.log(max(ratio, 1e-6))) / np.log(2.0))
    base = _HOT if ratio >= 1 else _COLD
    rgb = [round(255 + (channel - 255) * strength) for channel in base]
    return f"#{rgb[0]:02x}{rgb[1]:02x}{rgb[2]:02x}"


def _panel(one: HeatMap, y: int) -> tuple[str, int]:
    cells, row_size = fold(one.ratio, _MOST_ROWS, 0)
    cells, column_size = fold(cells, _MOST_COLUMNS, 1)
    rows, columns = cells.shape
    tall = max(3.0, min(18.0, 420 / max(rows, 1)))
    wide = (_WIDTH - _LEFT - 90) / max(columns, 1)
    height = round(_TOP + rows * tall + _BOTTOM)
    parts = [
        f'<g transform="translate(0,{y})">',
        f'<text x="{_LEFT}" y="20" font-size="14">{escape(one.title)}</text>',
        f'<text x="{_LEFT}" y="36" fill="#555">{escape(one.row_name)} by {one.column_name}; '
        f"red: slower than its like, white: alike</text>",
    ]
    for r in range(rows):
        top = _TOP + r * tall
        for c in range(columns):
            value = float(cells[r, c])
            parts.append(
                f'<rect x="{_LEFT + c * wide:.2f}" y="{top:.2f}" width="{wide + 0.3:.2f}" '
                f'height="{tall + 0.3:.2f}" fill="{_colour(value)}">'
                f"<title>{escape(one.rows[r * row_size])}, {one.column_name} "
                f"{escape(one.columns[c * column_size])}: {value:.3g}x</title></rect>"
            )
        if tall >= 11 or r % max(1, round(14 / tall)) == 0:
            parts.append(
                f'<text x="{_LEFT - 6}" y="{top + tall / 2 + 4:.1f}" text-anchor="end" '
                f'font-size="10">{escape(one.rows[r * row_size])}</text>'
            )
    foot = _TOP + rows * tall + 16
    for c in sorted({0, columns // 2, columns - 1}):
        parts.append(
            f'<text x="{_LEFT + (c + 0.5) * wide:.1f}" y="{foot:.1f}" text-anchor="middle" '
            f'font-size="10">{escape(one.columns[c * column_size])}</text>'
        )
    for i, ratio in enumerate((0.7, 1.0, 1.25, 1.5, 2.0)):
        x, top = _WIDTH - 80, _TOP + i * 18
        parts.append(
            f'<rect x="{x}" y="{top}" width="16" height="16" fill="{_colour(ratio)}" '
            f'stroke="#999"/><text x="{x + 22}" y="{top + 12}" font-size="10">{ratio}x</text>'
        )
    return "\n".join([*parts, "</g>"]), max(height, _TOP + 120)
