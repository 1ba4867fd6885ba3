"""A slow phase in a log of a few steps that one timer explains: it grows by what the step grows, and no other does."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from itertools import pairwise

from rerail.knowledge_base.causality.progress import step_rows
from rerail.knowledge_base.causality.rank_timers import is_time, part_timers
from rerail.knowledge_base.phrases import phrase_in_bytes, says
from rerail.late_dataclass import dataclass
from rerail.log_parsers.metrics import WEAK_FORMS
from rerail.log_parsers.step_numbers import StepRow
from rerail.log_parsers.view import LogView

_LEAST, _MOST_ROWS = 2, 24  # rows on either side of the change, and of the log
_STEADY, _ROSE = 1.1, 1.3
"""How far rows of one side may be apart, and the least factor by which the steps become slower."""
_GREW, _EXPLAINS = 3.0, 0.7
"""The least factor by which the timer grows, and the least share of what the step grows that is its growth."""


@dataclass(frozen=True, slots=True)
class GrownTimer:
    """The first slow row, the timer, its times in the unit of the log, and whether it is one of data."""

    row: StepRow
    name: str
    before: float
    after: float
    of_data: bool


def grown_timer(view: LogView) -> GrownTimer | None:
    """Return the one timer that explains why all later steps of a short log are slower, or None.

    Each step line has its timers on it or below it; of several writers none is taken.
    """
    rows = [
        row
        for row in step_rows(view)
        if row.step_time and row.form not in WEAK_FORMS and row.step is not None
    ]
    if not 2 * _LEAST <= len(rows) <= _MOST_ROWS or len({(row.form, row.rank) for row in rows}) > 1:
        return None
    if any((b.step or 0) <= (a.step or 0) for a, b in pairwise(rows)):
        return None  # the first batches of an epoch always wait
    times = [row.step_time or 0.0 for row in rows]
    at = next((n for n in range(_LEAST, len(rows) - _LEAST + 1) if _changes(times, n)), None)
    timers = _timers(view, rows) if at is not None else {}
    if at is None or not timers:
        return None
    grew_s = min(times[at:]) - max(times[:at])
    found = [
        GrownTimer(rows[at], name, max(values[:at]), min(values[at:]), says("timer-of-data", name))
        for name, values in timers.items()
        if min(values[at:]) >= _GREW * max(*values[:at], 1e-9)
    ]
    others = (values for name, values in timers.items() if name not in {one.name for one in found})
    if len(found) != 1 or any(max(values) > _STEADY * max(min(values), 1e-9) for values in others):
        return None
    # Timers tell seconds or milliseconds, which the log may say far above.
    grew = found[0].after - found[0].before
    told = any(
        grew * unit >= _EXPLAINS * grew_s > 0 and grew * unit <= 2 * grew_s for unit in (1.0, 1e-3)
    )
    return found[0] if told else None


def _changes(times: list[float], at: int) -> bool:
    before, after = times[:at], times[at:]
    return (
        min(before) > 0
        and max(before) <= _STEADY * min(before)
        and min(after) >= _ROSE * max(before)
    )


def _timers(view: LogView, rows: list[StepRow]) -> dict[str, list[float]]:
    """Return by name the timers that each step has exactly once, on its line or below it before the next one."""
    lines = [row.line for row in rows]
    found: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    near = phrase_in_bytes("near-part-timer")
    for number in view.between(lines[0], view.numbers[-1]):
        if not near.search(view.survey.kept[number]):
            continue
        line = view.line(number)
        if line is None:
            continue
        step = bisect_right(lines, number) - 1
        for match, value in part_timers(line):
            if is_time(line.message, match):
                found[match["name"]][step].append(value)
    return {
        name: [values[0] for _, values in sorted(steps.items())]
        for name, steps in found.items()
        if len(steps) == len(rows) and all(len(values) == 1 for values in steps.values())
    }
