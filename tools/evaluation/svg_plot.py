"""A plan of evaluation trials as SVG: the rules beside each other, and what runs where and when."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rerail.tools.drawing import svg_document
from rerail.tools.durations import seconds
from rerail.tools.evaluation.rows import Report, Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = {"inference": "#1d3557", "metric": "#e09f3e", "load": "#6b7280"}
_WORDS = {
    "inference": "blue: inference",
    "metric": "orange: metrics",
    "load": "grey: the model is copied",
}
_LIGHTER = "#6c8fb8"
_LEAST_SHARE_OF_NAME = 0.012  # of the width, for each letter
_ROW_INCHES = 0.17


def render(report: Report) -> str:
    """Return one SVG document.

    Raises:
        UsageError: matplotlib is not installed.
    """
    heights = [0.9 + 0.28 * len(report.rules_s)]
    heights += [0.9 + _ROW_INCHES * len(one.rows) for one in report.timelines]

    def draw(figure: Figure) -> None:
        axes = list(
            figure.subplots(len(heights), 1, gridspec_kw={"height_ratios": heights}, squeeze=False)
        )
        _rules(axes[0][0], report)
        longest = max(
            (bar.end_s for one in report.timelines for bar in one.bars), default=0.0
        )  # one scale, so that plan and run can be compared
        for place, one in zip(axes[1:], report.timelines, strict=True):
            _timeline(place[0], one, longest)

    return svg_document(sum(heights), draw)


def _rules(axes: Axes, report: Report) -> None:
    rows = list(report.rules_s.items())[::-1]
    axes.set_title(f"{report.name}: until the last metric", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.barh([name for name, _ in rows], [value for _, value in rows], color=_LIGHTER)
    most = max((value for _, value in rows), default=1.0) or 1.0
    for i, (_, value) in enumerate(rows):
        axes.annotate(f" {seconds(value)}", (value, i), va="center", fontsize=8)
    axes.set_xlim(0, most * 1.12)
    axes.set_xlabel("seconds")


def _timeline(axes: Axes, one: Timeline, longest: float) -> None:
    axes.set_title(one.title, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    whole = longest or 1.0
    count: dict[int, int] = {}
    for bar in sorted(one.bars, key=lambda bar: bar.begin_s):
        number = count[bar.row] = count.get(bar.row, 0) + 1
        colour = _COLOURS[bar.kind]
        if bar.kind == "inference" and number % 2:
            colour = _LIGHTER
        axes.barh(
            bar.row, bar.end_s - bar.begin_s, left=bar.begin_s, height=0.8, color=colour,
            edgecolor="white", linewidth=0.4,
        )  # fmt: skip
        if (bar.end_s - bar.begin_s) / whole > _LEAST_SHARE_OF_NAME * len(bar.name):
            axes.annotate(
                bar.name, ((bar.begin_s + bar.end_s) / 2, bar.row), ha="center", va="center",
                fontsize=6, color="white" if colour == _COLOURS["inference"] else "black",
            )  # fmt: skip
    axes.set_yticks(range(len(one.rows)), one.rows, fontsize=7)
    axes.set_ylim(len(one.rows) - 0.4, -0.6)
    axes.set_xlim(0, whole * 1.02)
    kinds = {bar.kind for bar in one.bars}
    words = [text for kind, text in _WORDS.items() if kind in kinds]
    axes.set_xlabel("; ".join(["seconds", *words]))
