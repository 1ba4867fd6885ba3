"""A forecast as one HTML page without scripts: tables and the plot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rerail.errors import UsageError
from rerail.tools.durations import long, seconds
from rerail.tools.forecast.forecast import Forecast
from rerail.tools.forecast.svg_plot import render as svg

_TEMPLATE = Path(__file__).with_name("page.html")


def render(
    found: Forecast, other: Forecast | None = None, changes: Sequence[str] | None = None
) -> str:
    """Return the page; names from the spec are escaped. `other` is the forecast with `changes`.

    Raises:
        UsageError: jinja2 or matplotlib is not installed.
    """
    try:
        from jinja2 import Environment
    except ImportError:
        raise UsageError(
            "HTML pages need jinja2, which is not installed", hint="pip install 'rerail[forecast]'"
        ) from None
    drawn = svg(found, other)
    environment = Environment(autoescape=True)
    environment.filters["seconds"] = seconds
    environment.filters["long"] = long
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    rows = [("as given", found.to_json())]
    if other is not None:
        rows.append(("what if", other.to_json()))
    return template.render(
        found=found, row=rows[0][1], rows=rows, changes=changes or [],
        jobs=[(name, row["job"]) for name, row in rows if row["job"] is not None],
        plot=drawn[drawn.index("<svg") :],
    )  # fmt: skip
