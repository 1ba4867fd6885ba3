"""Clock skew between nodes, from events that all nodes share.

A training step is such an event: the collectives in it hold all ranks together, so the same step
number printed by two nodes happened within a step time. The median difference is the skew.
"""

from __future__ import annotations

from collections.abc import Sequence

from rerail.log_parsers.middle import median
from rerail.log_parsers.view import LogView

MIN_SHARED = 3
_MOST_SHARED = 50
_LEAST_SHARED = 8
_MOST_LINES = 20_000
MIN_SKEW = 2.0
"""Seconds; below this the difference may be the printing, not the clock."""


def clock_offsets(views: Sequence[LogView]) -> dict[str, float]:
    """Return seconds to add to the times of each file so that shared steps coincide.

    The reference is the file with the most steps among those with times. Files without enough shared steps are
    left out: their clocks are taken as they are.
    """
    lines = {view.name: _step_lines(view) for view in views}
    stepping = [
        view
        for view in views
        if len(lines[view.name]) >= MIN_SHARED and _is_stamped(view, lines[view.name])
    ]
    if len(stepping) < 2:
        return {}
    # Parsing a line is dear, so only some of the steps that a file shares are looked at, of many files fewer.
    most = max(_LEAST_SHARED, min(_MOST_SHARED, _MOST_LINES // len(stepping)))
    reference = max(stepping, key=lambda view: (len(lines[view.name]), view.name))
    known = lines[reference.name]
    offsets = {}
    for view in stepping:
        shared = sorted(lines[view.name].keys() & known.keys())
        shared = shared[:: max(1, len(shared) // most)]
        if view is reference or len(shared) < MIN_SHARED:
            continue
        differences = []
        for step in shared:
            here = view.wall_time(lines[view.name][step])
            there = reference.wall_time(known[step])
            if here is not None and there is not None:
                differences.append(there - here)
        if len(differences) >= MIN_SHARED and abs(median(differences)) >= MIN_SKEW:
            offsets[view.name] = median(differences)
    return offsets


def _step_lines(view: LogView) -> dict[int, int]:
    """Return on which line each step was first printed."""
    lines: dict[int, int] = {}
    for row in view.survey.steps:
        if row.step is not None:
            lines.setdefault(row.step, row.line)
    return lines


def _is_stamped(view: LogView, lines: dict[int, int]) -> bool:
    first = list(lines.values())[:MIN_SHARED]
    return any(view.wall_time(number) is not None for number in first)
