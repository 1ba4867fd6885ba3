"""Clock skew between nodes, from events that all nodes share.

A training step is such an event: the collectives in it hold all ranks together, so the same step
number printed by two nodes happened within a step time. The median difference is the skew.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from rerail.log_parsers.view import LogView

MIN_SHARED = 3
MIN_SKEW = 2.0
"""Seconds; below this the difference may be the printing, not the clock."""


def clock_offsets(views: Sequence[LogView]) -> dict[str, float]:
    """Return seconds to add to the times of each file so that shared steps coincide.

    The reference is the file with the most stamped steps. Files without enough shared steps are
    left out: their clocks are taken as they are.
    """
    stepping = [view for view in views if len(view.survey.steps) >= MIN_SHARED]
    if len(stepping) < 2:
        return {}
    stamped = {view.name: _step_times(view) for view in stepping}
    stamped = {name: times for name, times in stamped.items() if len(times) >= MIN_SHARED}
    if len(stamped) < 2:
        return {}
    reference = max(stamped, key=lambda name: (len(stamped[name]), name))
    offsets = {}
    for name, times in stamped.items():
        shared = times.keys() & stamped[reference].keys()
        if name == reference or len(shared) < MIN_SHARED:
            continue
        skew = median(stamped[reference][step] - times[step] for step in shared)
        if abs(skew) >= MIN_SKEW:
            offsets[name] = skew
    return offsets


def _step_times(view: LogView) -> dict[int, float]:
    times: dict[int, float] = {}
    rows = view.survey.steps
    for row in rows[:: max(1, len(rows) // 500)]:
        if row.step is None:
            continue
        line = view.line(row.line)
        if line is not None and line.time is not None and line.clock == "wall":
            times.setdefault(row.step, line.time)
    return times
