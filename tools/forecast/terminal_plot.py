"""A forecast for the terminal: the distribution of the step time as ASCII bars."""

from __future__ import annotations

import numpy as np

from rerail.tools.durations import seconds
from rerail.tools.forecast.step import StepForecast


def render(step: StepForecast, width: int = 72, rows: int = 12) -> str:
    """Return a histogram between the 0.1st and 99.9th percentile, marked at p5, p50 and p95."""
    low, high = step.percentile(0.1), step.percentile(99.9)
    if high <= low:
        return f"every step takes {seconds(low)}"
    edges = np.linspace(low, high, rows + 1)
    share = np.diff(step.step.cdf(edges))
    marks = {f"p{p}": step.percentile(p) for p in (5, 50, 95)}
    label = max(len(_exact(edge, high - low)) for edge in edges)
    most = float(share.max()) or 1.0
    room = max(10, width - label - 14)
    lines = []
    for i in range(rows):
        bar = "#" * round(room * float(share[i]) / most)
        inside = [name for name, at in marks.items() if edges[i] <= at < edges[i + 1]]
        lines.append(
            f"{_exact(float(edges[i]), high - low):>{label}} |{bar:<{room}} {' '.join(inside)}".rstrip()
        )
    return "\n".join(lines)


def _exact(value: float, span: float) -> str:
    """Return seconds with as many digits as tell neighbouring bars apart."""
    digits = max(0, min(9, 2 - int(np.floor(np.log10(span)))))
    return f"{value:.{digits}f} s"
