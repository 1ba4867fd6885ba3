"""A forecast as one HTML page without scripts: tables and the plot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rerail.tools.drawing import page
from rerail.tools.forecast.forecast import Forecast
from rerail.tools.forecast.placed_steps import PLACEMENT_WORDS
from rerail.tools.forecast.svg_plot import render as svg

_TEMPLATE = Path(__file__).with_name("page.html")


def render(
    found: Forecast, other: Forecast | None = None, changes: Sequence[str] | None = None
) -> str:
    """Return the page; names from the spec are escaped. `other` is the forecast with `changes`.

    Raises:
        UsageError: jinja2 or matplotlib is not installed.
    """
    rows = [("as given", found.to_json())]
    if other is not None:
        rows.append(("what if", other.to_json()))
    return page(
        _TEMPLATE, svg(found, other), found=found, row=rows[0][1], rows=rows, changes=changes or [],
        placements=PLACEMENT_WORDS,
        jobs=[(name, row["job"]) for name, row in rows if row["job"] is not None],
    )  # fmt: skip
