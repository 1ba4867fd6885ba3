"""A figure as an SVG document, and a template with it as a page without scripts."""

from __future__ import annotations

import re
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rerail.errors import UsageError
from rerail.tools.durations import long, seconds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SETTINGS: Any = {
    "svg.fonttype": "none", "svg.hashsalt": "rerail", "font.family": "sans-serif", "font.size": 9,
}  # fmt: skip
_WIDTH_INCHES = 9.6


def svg_document(height_inches: float, draw: Callable[[Figure], None]) -> str:
    """Return what `draw` puts on a figure as one SVG document, the same bytes for the same figure.

    Raises:
        UsageError: matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError(
            "plots need matplotlib, which is not installed", hint="pip install 'rerail[forecast]'"
        ) from None
    with mpl.rc_context(_SETTINGS):
        figure = Figure(figsize=(_WIDTH_INCHES, height_inches), layout="constrained")
        draw(figure)
        out = StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    # Points as plain units: what draws the PNG knows no other.
    return re.sub(r'(width|height)="([\d.]+)pt"', r'\1="\2"', out.getvalue(), count=2)


def page(template: Path, svg: str, **values: Any) -> str:
    """Return a template filled with the values, which are escaped, and the SVG document as `plot`.

    Raises:
        UsageError: jinja2 is not installed.
    """
    try:
        from jinja2 import Environment
    except ImportError:
        raise UsageError(
            "HTML pages need jinja2, which is not installed", hint="pip install 'rerail[forecast]'"
        ) from None
    environment = Environment(autoescape=True)
    environment.filters |= {"seconds": seconds, "long": long}
    made = environment.from_string(template.read_text(encoding="utf-8"))
    return made.render(plot=svg[svg.index("<svg") :], **values)
