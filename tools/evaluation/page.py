"""A plan of evaluation trials, and its run, as one HTML page without scripts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rerail.errors import UsageError
from rerail.tools.durations import seconds
from rerail.tools.evaluation.rows import Report
from rerail.tools.evaluation.svg_plot import render as svg

_TEMPLATE = Path(__file__).with_name("page.html")


def render(report: Report, run: Mapping[str, Any] | None = None) -> str:
    """Return the page; names and reasons are escaped. `run` is the JSON form of how a run ended.

    Raises:
        UsageError: jinja2 or matplotlib is not installed.
    """
    try:
        from jinja2 import Environment
    except ImportError:
        raise UsageError(
            "HTML pages need jinja2, which is not installed", hint="pip install 'rerail[forecast]'"
        ) from None
    drawn = svg(report)
    environment = Environment(autoescape=True)
    environment.filters["seconds"] = seconds
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    return template.render(report=report, run=run, plot=drawn[drawn.index("<svg") :])
