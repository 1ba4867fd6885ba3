"""Tells whether files that are called as the parts of one rotated log are that, by what they begin and end with.

A part of a log goes on where the older one ended. What begins anew, as the logs of several ranks do that were numbered
in the same way, is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy
from rerail.log_parsers.metrics import WEAK_FORMS, StepReader
from rerail.log_parsers.piece import Piece
from rerail.log_parsers.prefixes import parse_line
from rerail.log_parsers.step_numbers import StepRow
from rerail.log_parsers.text import clean
from rerail.log_parsers.timestamps import WALL, find_stamp

_SAME_HEAD, _LEAST_HEAD = 4096, 200
_BESIDE_S = 10.0
"""The parts of one log follow each other; buffers of several writers apart, files that overlap are written side by side."""
_NEW_YEAR_S = 300 * 86_400.0
_STAMPED = 200  # lines in which a time is looked for
_LABELLED = 50  # lines in which a rank is looked for
_BANNER = 2  # lines
_NUMBER = lazy(rb"\d+")
_YEAR = 2000


@dataclass(frozen=True, slots=True)
class Ends:
    """The first bytes of a file, and the last ones where they can be had without reading all of it."""

    first: bytes
    last: bytes = b""


_Times = tuple[float | None, float | None]


def are_one_log(parts: Sequence[tuple[int | None, Ends]], *, as_ranks: bool = False) -> bool:
    """Tell whether files, the oldest first, are parts of one log, where their names say so; each with its number there.

    Where the names count `as_ranks` do, only what goes on where the older one ended is a part.
    """
    ends = [one for _, one in parts]
    if _copies(ends):
        return False
    times = [_times(one) for one in ends]
    if _overlap(times):
        return False
    if all(last is not None and begun is not None for (_, last), (begun, _) in pairwise(times)):
        return True
    if _tell_own_ranks(parts) or _begin_alike(ends):
        return False
    rows = [
        _first_rows(one) for one in ends
    ]  # dear: hundreds of logs of ranks are told apart by less
    if any(_anew(*two) for two in pairwise(rows)):
        return False
    return not as_ranks or _later(times) or all(_goes_on(*two) for two in pairwise(rows))


def _copies(parts: Sequence[Ends]) -> bool:
    heads = sorted(part.first[:_SAME_HEAD] for part in parts if len(part.first) >= _LEAST_HEAD)
    return any(longer.startswith(head) for head, longer in pairwise(heads))


def _times(part: Ends) -> _Times:
    """Return when a part began and ended, each where it is known."""
    begun = _time(part.first.splitlines()[:_STAMPED])
    return begun, _time(part.last.splitlines()[: -_STAMPED - 1 : -1])


def _time(lines: Sequence[bytes]) -> float | None:
    stamps = (find_stamp(clean(line), year=_YEAR) for line in lines)
    return next((stamp.seconds for stamp in stamps if stamp and stamp.clock == WALL), None)


def _overlap(times: Sequence[_Times]) -> bool:
    """Tell whether a part began before an older one had ended: they were written at the same time."""
    reached: float | None = None
    for begun, last in times:
        if reached is not None and begun is not None and _BESIDE_S < reached - begun < _NEW_YEAR_S:
            return True
        reached = max((time for time in (reached, begun, last) if time is not None), default=None)
    return False


def _later(times: Sequence[_Times]) -> bool:
    """Tell whether each part began later than the older one did; ranks begin together."""
    return all(
        older is not None and newer is not None and newer - older > _BESIDE_S
        for (older, _), (newer, _) in pairwise(times)
    )


def _begin_alike(parts: Sequence[Ends]) -> bool:
    """Tell whether two parts begin with the same lines but for numbers, lines that come nowhere else in them."""
    heads: set[tuple[bytes, ...]] = set()
    for part in parts:
        lines = [line for line in _NUMBER.sub(b"0", part.first).splitlines() if line.strip()]
        head = tuple(lines[:_BANNER])
        if len(head) < _BANNER or any(lines.count(line) > 1 for line in head):
            continue
        if head in heads:
            return True
        heads.add(head)
    return False


def _tell_own_ranks(parts: Sequence[tuple[int | None, Ends]]) -> bool:
    """Tell whether the only rank in front of the lines of each part is the number of the part's name."""
    told = set[int | None]()
    for number, part in parts:
        texts = (clean(line) for line in part.first.splitlines()[:_LABELLED])
        ranks = {parse_line("", 1, text, year=_YEAR).rank for text in texts} - {None}
        if ranks - {number}:
            return False
        told |= ranks
    return len(told) > 1


def _first_rows(part: Ends) -> list[StepRow]:
    """Return the first step lines of a part, all of one form."""
    reader = StepReader()
    reader.feed(Piece(part.first[: part.first.rfind(b"\n") + 1]), 1)
    rows = [row for row in reader.finish() if row.step is not None and row.form not in WEAK_FORMS]
    return [row for row in rows if row.form == rows[0].form]


def _anew(older: Sequence[StepRow], newer: Sequence[StepRow]) -> bool:
    """Tell whether steps begin again from the number from which they rose in the older part."""
    if not older or not newer:
        return False
    begun = older[0].form, older[0].epoch, older[0].step
    rose = any(row.step != older[0].step for row in older)
    return rose and (newer[0].form, newer[0].epoch, newer[0].step) == begun


def _goes_on(older: Sequence[StepRow], newer: Sequence[StepRow]) -> bool:
    """Tell whether steps go on behind those of the older part."""
    if not older or not newer or older[0].form != newer[0].form:
        return False
    return (newer[0].step or 0) > max(row.step or 0 for row in older)
