"""Charts of a post-mortem as SVG text: a series with the failure marked, and the ranks.

Written by hand and small, so that a page holds them inline and needs no script, font or network.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from rerail.domain.incident import Incident, RankFact, SeriesSnapshot

WIDTH, HEIGHT = 760, 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 14, 28, 34
_CELL = 14
_PER_ROW = 48
_MOST_CELLS = 1536
_LINE, FAULT, GRID, _INK = "#1d3557", "#a4133c", "#e3e3e3", "#333333"
PART = {"suspect": "#a4133c", "reported": "#c77d9b", "consequence": "#e8a33d", "quiet": "#9bb8cf"}
_TITLES = {
    "loss": "loss",
    "step_time_s": "step time, s",
    "relative_step_time": "relative step time",
    "grad_norm": "gradient norm",
    "throughput": "throughput",
    "steps_per_s": "throughput, steps per second",
}


def charts(incident: Incident) -> list[tuple[str, str]]:
    """Return (name, SVG) of every chart the record allows."""
    found = []
    failed_at = incident.diagnosis.progress.get("last_step")
    step = failed_at if isinstance(failed_at, int) else None
    for series in incident.snapshot.series:
        if series.name in _TITLES and any(v is not None for v in series.value):
            found.append((series.name, series_chart(series, step)))
    if len(incident.snapshot.ranks) > 1:
        from rerail.assistant.postmortem.rank_times import rank_times

        found.append(("ranks", rank_chart(incident.snapshot.ranks)))
        over_time = rank_times(incident)
        if over_time is not None:
            found.append(("rank-times", over_time))
    return found


def series_chart(series: SeriesSnapshot, failed_at: int | None) -> str:
    """Return one series over steps; points that are no number are marked at the top."""
    values = [v for v in series.value if v is not None and math.isfinite(v)]
    low, high = min(values), max(values)
    if high == low:
        low, high = low - (abs(low) * 0.05 or 0.5), high + (abs(high) * 0.05 or 0.5)
    first = series.step[0]
    last = max(series.step[-1], failed_at or 0, first + 1)

    def x(step: float) -> float:
        share = (step - first) / (last - first)
        return _LEFT + min(max(share, 0.0), 1.0) * (WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return HEIGHT - _BOTTOM - (value - low) / (high - low) * (HEIGHT - _TOP - _BOTTOM)

    title = _TITLES.get(series.name, series.name)
    if series.rank is not None:
        title += f" (rank {series.rank})"
    parts = [
        open_svg(HEIGHT, title),
        f'<text x="{_LEFT}" y="17" font-size="13">{escape(title)}</text>',
    ]
    for share in (0.0, 0.5, 1.0):
        value = low + share * (high - low)
        parts.append(
            f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" '
            f'stroke="{GRID}"/><text x="{_LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">'
            f"{value:.4g}</text>"
        )
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        step = round(first + share * (last - first))
        anchor = "end" if share == 1.0 else "middle"
        parts.append(
            f'<text x="{x(step):.1f}" y="{HEIGHT - _BOTTOM + 15}" text-anchor="{anchor}">{step}</text>'
        )
    parts.append(f'<text x="{WIDTH / 2:.0f}" y="{HEIGHT - 5}" text-anchor="middle">step</text>')
    for run in _runs(series):
        points = " ".join(f"{x(s):.1f},{y(v):.1f}" for s, v in run)
        if len(run) == 1:
            parts.append(
                f'<circle cx="{x(run[0][0]):.1f}" cy="{y(run[0][1]):.1f}" r="2" fill="{_LINE}"/>'
            )
        else:
            parts.append(
                f'<polyline points="{points}" fill="none" stroke="{_LINE}" stroke-width="1.3"/>'
            )
    for at_step, point in zip(series.step, series.value, strict=True):
        if point is None and series.name == "loss":
            parts.append(
                f'<circle cx="{x(at_step):.1f}" cy="{_TOP + 4}" r="3" fill="none" stroke="{FAULT}">'
                f"<title>step {at_step}: not a number</title></circle>"
            )
    if failed_at is not None:
        at = x(failed_at)
        anchor = "end" if at > WIDTH / 2 else "start"
        shift = -5 if anchor == "end" else 5
        parts.append(
            f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP - 6}" y2="{HEIGHT - _BOTTOM}" '
            f'stroke="{FAULT}" stroke-width="1.5" stroke-dasharray="5 3"/>'
            f'<text x="{at + shift:.1f}" y="{_TOP + 2}" text-anchor="{anchor}" fill="{FAULT}">'
            f"last step {failed_at}</text>"
        )
    return "\n".join([*parts, "</svg>"])


def _runs(series: SeriesSnapshot) -> list[list[tuple[int, float]]]:
    """Split a series where a value is missing or the steps go back."""
    runs: list[list[tuple[int, float]]] = [[]]
    for step, value in zip(series.step, series.value, strict=True):
        if value is None or not math.isfinite(value):
            runs.append([])
            continue
        if runs[-1] and step < runs[-1][-1][0]:
            runs.append([])
        runs[-1].append((step, value))
    return [run for run in runs if run]


def rank_chart(ranks: Sequence[RankFact]) -> str:
    """Return the ranks as a grid of cells, coloured by the part that each had in the failure."""
    shown = ranks[:_MOST_CELLS]
    rows = math.ceil(len(shown) / _PER_ROW)
    height = 64 + rows * (_CELL + 3)
    parts = [
        open_svg(height, "ranks"),
        f'<text x="{_LEFT}" y="17" font-size="13">{len(ranks)} ranks</text>',
    ]
    offset = float(_LEFT + 90)
    for part, text in (
        ("suspect", "suspect"),
        ("reported", "reported the failure"),
        ("consequence", "hit by the consequences"),
        ("quiet", "nothing reported"),
    ):
        parts.append(
            f'<rect x="{offset:.0f}" y="7" width="11" height="11" rx="2" fill="{PART[part]}"/>'
            f'<text x="{offset + 16:.0f}" y="17">{text}</text>'
        )
        offset += 40 + 7 * len(text)
    for index, fact in enumerate(shown):
        row, column = divmod(index, _PER_ROW)
        x, y = _LEFT + column * _CELL, 34 + row * (_CELL + 3)
        if column == 0:
            parts.append(f'<text x="{_LEFT - 6}" y="{y + 10}" text-anchor="end">{fact.rank}</text>')
        note = f"rank {fact.rank}"
        if fact.node:
            note += f", {fact.node}"
        if fact.last_step is not None:
            note += f", last step {fact.last_step}"
        parts.append(
            f'<rect x="{x}" y="{y}" width="11" height="12" rx="2" fill="{PART[fact.part]}">'
            f"<title>{escape(note)}</title></rect>"
        )
    if len(ranks) > len(shown):
        parts.append(
            f'<text x="{_LEFT}" y="{height - 8}">and {len(ranks) - len(shown)} more</text>'
        )
    return "\n".join([*parts, "</svg>"])


def open_svg(height: int, title: str) -> str:
    """Return how every chart begins: size, font, white ground."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="11" fill="{_INK}" '
        f'role="img" aria-label="{escape(title, quote=True)}">'
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>'
    )
