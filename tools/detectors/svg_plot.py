"""A step series as SVG: step times, slow phases shaded, events marked. Plain text, no library."""

from __future__ import annotations

import math
from html import escape
from itertools import pairwise

import numpy as np

from rerail.domain.series import FloatArray, StepSeries
from rerail.tools.detectors.events import EventKind, SeriesReport, Stage
from rerail.tools.durations import seconds

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 960, 300, 72, 16, 34, 40
_FILL = {Stage.CONFIRMED: "#d1495b", Stage.SUSPECT: "#e8a33d", Stage.BRIEF: "#e8a33d"}
_MARK = {
    EventKind.SLOW_ONSET: "#a4133c",
    EventKind.CREEP: "#a4133c",
    EventKind.SLOW_RELIEF: "#2d6a4f",
    EventKind.NAN: "#5a189a",
    EventKind.LOSS_DIVERGENCE: "#5a189a",
    EventKind.LOSS_SPIKE: "#5a189a",
    EventKind.HANG: "#000000",
}


def render(pairs: list[tuple[StepSeries, SeriesReport]]) -> str:
    """Return one SVG document with a panel for each series and its report."""
    panels = [_panel(series, report, number) for number, (series, report) in enumerate(pairs)]
    height = HEIGHT * max(1, len(panels))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">',
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
            *panels,
            "</svg>\n",
        ]
    )


def _panel(series: StepSeries, report: SeriesReport, number: int) -> str:
    times = np.where(series.step_time_s > 0, series.step_time_s, np.nan)
    rows = np.flatnonzero(np.isfinite(times))
    title = f"{series.name}: {report.outcome}" + (f", {report.reason}" if report.reason else "")
    parts = [
        f'<g transform="translate(0,{number * HEIGHT})">',
        f'<text x="{LEFT}" y="20" font-size="14">{escape(title)}</text>',
    ]
    if len(rows) == 0:
        parts += [f'<text x="{LEFT}" y="80" fill="#666">no step times</text>', "</g>"]
        return "\n".join(parts)
    axes = _Axes(times[rows], rows)
    parts += axes.draw(series)
    for item in report.episodes:
        x0, x1 = axes.x(item.first), axes.x(max(item.last - 1, item.first))
        note = f"{item.first_step}-{item.last_step}: {seconds(item.lost_s)} lost, {item.stage}"
        parts.append(
            f'<rect x="{x0:.1f}" y="{TOP}" width="{max(1.0, x1 - x0):.1f}" '
            f'height="{HEIGHT - TOP - BOTTOM}" fill="{_FILL[item.stage]}" fill-opacity="0.18">'
            f"<title>{escape(note)}</title></rect>"
        )
    parts.append(_line(axes, times, rows))
    for event in report.events:
        if event.index < 0 or event.kind not in _MARK:
            continue
        x = axes.x(event.index)
        change = f" {event.change:+.1%}" if math.isfinite(event.change) else ""
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" '
            f'stroke="{_MARK[event.kind]}" stroke-dasharray="4 3">'
            f"<title>{escape(f'{event.kind} at step {event.step}{change}')}</title></line>"
        )
    parts.append("</g>")
    return "\n".join(parts)


class _Axes:
    """Row and seconds to pixels; the vertical axis is cut above rare pauses."""

    def __init__(self, known: FloatArray, rows: np.ndarray) -> None:
        self.first, self.last = int(rows[0]), max(int(rows[-1]), int(rows[0]) + 1)
        low, high = float(known.min()), float(np.quantile(known, 0.995))
        if float(known.max()) < 2 * high:
            high = float(known.max())
        margin = 0.08 * (high - low) or 0.05 * high
        self.low, self.high = max(0.0, low - margin), high + margin

    def x(self, row: float) -> float:
        return LEFT + (row - self.first) / (self.last - self.first) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    def draw(self, series: StepSeries) -> list[str]:
        parts = []
        for share in (0.0, 0.25, 0.5, 0.75, 1.0):
            value = self.low + share * (self.high - self.low)
            y = self.y(value)
            parts.append(
                f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" '
                f'stroke="#dddddd"/><text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">'
                f"{seconds(value)}</text>"
            )
        for share in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0):
            row = min(len(series) - 1, round(self.first + share * (self.last - self.first)))
            parts.append(
                f'<text x="{self.x(row):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">'
                f"{int(series.step[row])}</text>"
            )
        middle = (LEFT + WIDTH - RIGHT) / 2
        parts.append(f'<text x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">step</text>')
        return parts


def _line(axes: _Axes, times: FloatArray, rows: np.ndarray) -> str:
    """Return the series as a polyline; long ones as minimum and maximum of each pixel column."""
    if len(rows) > 2 * WIDTH:
        edges = np.linspace(0, len(rows), WIDTH + 1).astype(int)
        picked: list[int] = []
        for a, b in pairwise(edges):
            part = rows[a:b]
            if len(part):
                low, high = int(np.argmin(times[part])), int(np.argmax(times[part]))
                picked += [int(part[index]) for index in sorted({low, high})]
        rows = np.array(picked)
    points = " ".join(f"{axes.x(row):.1f},{axes.y(float(times[row])):.1f}" for row in rows)
    return f'<polyline points="{points}" fill="none" stroke="#1d3557" stroke-width="1.2"/>'
