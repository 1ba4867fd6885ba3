"""A plan of evaluation trials, and its run, as one HTML page without scripts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rerail.tools.drawing import page
from rerail.tools.evaluation.rows import Report
from rerail.tools.evaluation.svg_plot import render as svg

_TEMPLATE = Path(__file__).with_name("page.html")


def render(report: Report, run: Mapping[str, Any] | None = None) -> str:
    """Return the page; names and reasons are escaped. `run` is the JSON form of how a run ended.

    Raises:
        UsageError: jinja2 or matplotlib is not installed.
    """
    return page(_TEMPLATE, svg(report), report=report, run=run)
