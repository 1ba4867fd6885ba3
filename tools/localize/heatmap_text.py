"""The rank-by-step heat map for a terminal: the rows that differ most, in plain characters."""

from __future__ import annotations

import numpy as np

from rerail.tools.localize.heatmap_svg import HeatMap, fold

_SHADES = " .:-=+*#@"
_FULL = 2.0
_ROWS = 10


def render_text(one: HeatMap, width: int = 80) -> str:
    """Return the map as lines of at most `width` characters; blank is alike, @ twice as slow.

    Only the rows that were slowest are shown, in their own order, with how many were left out.
    """
    label = max((len(name) for name in one.rows), default=4)
    cells, size = fold(one.ratio, max(8, width - label - 4), 1)
    typical = np.nanmedian(one.ratio, axis=1)
    worst = np.sort(np.argsort(-np.nan_to_num(typical), kind="stable")[:_ROWS])
    lines = [f"{one.row_name} by {one.column_name}; blank: like the others, @: twice as slow"]
    for row in worst:
        marks = "".join(_shade(float(value)) for value in cells[row])
        lines.append(f"{one.rows[row]:>{label}} |{marks}|")
    first, last = one.columns[0], one.columns[-1]
    axis = f"{first}{last:>{max(1, cells.shape[1] - len(first))}}"
    lines.append(f"{'':>{label}}  {axis}")
    hidden = len(one.rows) - len(worst)
    if hidden:
        lines.append(f"{hidden} more rows, none of them slower")
    if size > 1:
        lines.append(f"each mark is the slowest of {size} columns")
    return "\n".join(lines)


def _shade(ratio: float) -> str:
    if ratio != ratio:
        return "?"
    level = (ratio - 1.0) / (_FULL - 1.0) * (len(_SHADES) - 1)
    return _SHADES[int(np.clip(round(level), 0, len(_SHADES) - 1))]
