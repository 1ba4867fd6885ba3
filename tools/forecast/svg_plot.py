"""A forecast as SVG: distribution of the step time, of the job time, and what moves it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rerail.tools.drawing import svg_document
from rerail.tools.durations import digits, shortened
from rerail.tools.forecast.forecast import Forecast
from rerail.tools.forecast.job import JobForecast

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BLUE, _RED, _GREY = "#1d3557", "#d1495b", "#6b7280"
_MOST_BARS = 8
_PANEL_INCHES = 2.9


def render(found: Forecast, other: Forecast | None = None) -> str:
    """Return one SVG document; `other` is a what-if, drawn over the forecast in red.

    Raises:
        UsageError: matplotlib is not installed.
    """
    jobs = found.job is not None or (other is not None and other.job is not None)
    panels = 1 + jobs + bool(found.sensitivity or found.critical)

    def draw(figure: Figure) -> None:
        axes = list(np.atleast_1d(figure.subplots(panels, 1)))
        _step(axes.pop(0), found, other)
        if jobs:
            _job(axes.pop(0), found.job, None if other is None else other.job)
        if axes:
            _bars(axes.pop(0), found)

    return svg_document(_PANEL_INCHES * panels, draw)


def _step(axes: Axes, found: Forecast, other: Forecast | None) -> None:
    step = found.step
    shown = [one.step for one in (found, other) if one is not None]
    low = min(one.percentile(0.1) for one in shown)
    high = max(one.percentile(99.9) for one in shown)
    axes.set_title(f"{shortened(found.spec.name, 60)}: step time", loc="left")
    axes.set_xlabel("seconds")
    axes.set_ylabel("share of steps")
    axes.spines[["top", "right"]].set_visible(False)
    if high <= low:
        axes.axvline(low, color=_BLUE)
        return
    edges = np.linspace(low, high, 61)
    share = np.diff(step.step.cdf(edges))
    axes.bar(edges[:-1], share, width=np.diff(edges), align="edge", color=_BLUE, alpha=0.75)
    most = float(share.max())
    if other is not None:
        changed = np.diff(other.step.step.cdf(edges))
        axes.stairs(changed, edges, color=_RED)
        axes.set_xlabel("seconds; blue: as given, red line: what if")
        most = max(most, float(changed.max()))
    for line, percent in enumerate((5, 50, 95, 99)):
        at = step.percentile(percent)
        axes.axvline(at, color=_GREY, linestyle=":", linewidth=1)
        axes.annotate(
            f" p{percent} {digits(at)} s", (at, most * (1.38 - 0.11 * line)),
            fontsize=8, color=_GREY, ha="left",
        )  # fmt: skip
    axes.set_ylim(0, most * 1.5)
    seen = found.observed
    if seen is not None:
        axes.axvline(seen.observed_p50_s, color=_RED, linewidth=1.5)
        axes.annotate(
            f"observed p50 {digits(seen.observed_p50_s)} s",
            (seen.observed_p50_s, most * 0.6), color=_RED, fontsize=8,
        )  # fmt: skip


def _job(axes: Axes, given: JobForecast | None, changed: JobForecast | None) -> None:
    says = []
    for job, name, colour in ((given, "", _BLUE), (changed, "what if (red): ", _RED)):
        if job is None:
            continue
        days = np.sort(job.time_s) / 86_400
        axes.plot(days, (np.arange(len(days)) + 0.5) / len(days), color=colour)
        says.append(
            f"{name}{job.steps:,} steps on {job.reliability.nodes:,} nodes: goodput {job.goodput:.1%}"
        )
    axes.set_title("\n".join(says), loc="left")
    axes.set_xlabel("days until the last step")
    axes.set_ylabel("probability of being done")
    axes.spines[["top", "right"]].set_visible(False)
    job = given or changed
    if job is not None and job.deadline_s is not None:
        axes.axvline(job.deadline_s / 86_400, color=_RED, linewidth=1.5)
        axes.annotate(
            f"deadline, missed with {job.misses_deadline:.1%}", (job.deadline_s / 86_400, 0.1),
            color=_RED, fontsize=8,
        )  # fmt: skip


def _bars(axes: Axes, found: Forecast) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    if found.sensitivity:
        rows = [
            (f"{shortened(one.kernel)}: {one.change}", 100 * one.p95_change)
            for one in found.sensitivity[:_MOST_BARS]
        ]
        axes.set_title("what moves the p95 of the step time", loc="left")
        axes.set_xlabel("change in percent")
    else:
        rows = [
            (", ".join(filter(None, (shortened(one.op), one.where, one.position))), 100 * one.share)
            for one in found.critical[:_MOST_BARS]
        ]
        axes.set_title("where the critical path runs", loc="left")
        axes.set_xlabel("percent of its time")
    rows.reverse()
    values = [value for _, value in rows]
    axes.barh([name for name, _ in rows], values, color=[_RED if v > 0 else _BLUE for v in values])
    axes.axvline(0, color=_GREY, linewidth=0.8)
