"""All entries of a timeline on one axis of time, a lane for each source, long waits between them shortened."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from rerail.assistant.postmortem.impact import in_words
from rerail.assistant.presentation.incident import TimelineRow
from rerail.knowledge_base.store.clock import from_iso

WIDTH, LEFT, RIGHT, LANE = 1000, 120, 20, 26
_APART = 9
"""Marks of one lane that lie closer than this are one mark with their number."""
_LEAST_S = 0.5
_SHORTENED = 3.0
"""A wait of more than so many middle waits is drawn as long as so many."""


@dataclass(frozen=True, slots=True)
class AxisMark:
    """One or several entries at one place: x and y, how many, the number of the first row, what they say."""

    x: float
    y: float
    count: int
    row: int
    fault: bool
    says: str


@dataclass(frozen=True, slots=True)
class Axis:
    """The drawing: lanes as (word, y), marks, shortened waits as (x, words), ends as clock times.

    `stops` are pairs of a time in seconds since the epoch and its x, in order: between them it is linear.
    """

    height: int
    lanes: tuple[tuple[str, float], ...]
    marks: tuple[AxisMark, ...]
    waits: tuple[tuple[float, str], ...]
    stops: tuple[tuple[float, float], ...]
    begins: str
    ends: str


def timeline_axis(rows: Sequence[TimelineRow]) -> Axis | None:
    """Return the axis, or None where all happened at one moment."""
    at = [from_iso(row.time).timestamp() for row in rows]
    times = sorted(set(at))
    if len(times) < 2:
        return None
    stops, waits = _stops(times)
    place = dict(stops)
    words = tuple(dict.fromkeys(row.word for row in rows))
    lane = {word: LANE * (number + 0.5) for number, word in enumerate(words)}
    marks: list[AxisMark] = []
    last: dict[tuple[str, bool], int] = {}
    for number, (row, moment) in enumerate(zip(rows, at, strict=True)):
        x, fault = place[moment], row.kind == "initiating"
        known = last.get((row.word, fault))
        if known is not None and x - marks[known].x < _APART:
            before = marks[known]
            marks[known] = AxisMark(
                before.x, before.y, before.count + 1, before.row, fault, before.says
            )
            continue
        last[row.word, fault] = len(marks)
        says = f"{row.clock} {row.word}: {row.text[:160]}"
        marks.append(AxisMark(x, lane[row.word], 1, number, fault, says))
    return Axis(
        height=LANE * len(words),
        lanes=tuple(lane.items()),
        marks=tuple(marks),
        waits=waits,
        stops=stops,
        begins=_moment(rows, at, times[0]),
        ends=_moment(rows, at, times[-1]),
    )


def _stops(
    times: Sequence[float],
) -> tuple[tuple[tuple[float, float], ...], tuple[tuple[float, str], ...]]:
    gaps = [after - before for before, after in pairwise(times)]
    longest = _SHORTENED * max(_LEAST_S, statistics.median_low(gaps))
    drawn = [min(gap, longest) for gap in gaps]
    scale = (WIDTH - LEFT - RIGHT) / sum(drawn)
    stops, waits, x = [(times[0], float(LEFT))], [], float(LEFT)
    for moment, gap, length in zip(times[1:], gaps, drawn, strict=True):
        if gap > 2 * longest:
            waits.append((round(x + length * scale / 2, 1), in_words(gap)))
        x += length * scale
        stops.append((moment, round(x, 1)))
    return tuple(stops), tuple(waits)


def _moment(rows: Sequence[TimelineRow], at: Sequence[float], wanted: float) -> str:
    row = rows[at.index(wanted)]
    return f"{row.time[:10]} {row.clock}"
