"""The fleet view as one HTML file without scripts, from the template of the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, select_autoescape
from markupsafe import Markup

from rerail.assistant.presentation import fleet_words
from rerail.assistant.presentation.fleet import FleetView
from rerail.assistant.presentation.fleet_tables import site_tables

_WEB = Path(__file__).parents[1] / "web"


def fleet_values(view: FleetView) -> dict[str, Any]:
    """Return what the template of the fleet is filled with."""
    return {
        "view": view,
        "told": fleet_words.fleet_sentences(view),
        "words": fleet_words,
        "tables": site_tables(view),
        "several": len({row.cluster for row in view.nodes}) > 1,
    }


def fleet_html(view: FleetView) -> str:
    """Return the file; nothing in it is loaded from elsewhere."""
    environment = Environment(
        loader=FileSystemLoader(_WEB / "templates"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = (_WEB / "own" / "rerail.css").read_text(encoding="utf-8")
    template = environment.get_template("fleet_report.html")
    # The style sheet is our own file; text of logs is only ever in escaped values.
    return template.render(**fleet_values(view), style=Markup(style), linked=False)  # noqa: S704
