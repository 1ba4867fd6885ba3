"""Who has no entry where others wait, in the table that torchfrtrace prints: a column for each rank, a row for each call.

Source: `just_print_entries` of pytorch (torch/distributed/flight_recorder/components/utils.py): the entries of each
rank's dump one below the other, and blanks for a rank that has no more.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from rerail.domain.evidence import LogLine
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.waiting.read import Told
from rerail.lazy_patterns import lazy
from rerail.log_parsers.view import LogView

_HEAD = lazy(r"Rank (?P<rank>\d{1,6})")
_DASHES = lazy(r"[\s-]*-{3}[\s-]*")
_ENTRY = lazy(r"\w{2,80}\(.*\bstate=(?P<state>\w+)\)")
_WAITS = frozenset({"scheduled", "started"})
_MOST_ROWS = 2_000
_WORDS = "{are} without the call that the others wait in, by their flight recorders"


def behind_in_tables(case: Case) -> Iterator[Told]:
    """Yield whom the tables of a case show behind: their columns end where all others have a call that is not over."""
    for observation in case.observations:
        if "rank_columns" in observation.marks:
            told = _behind(case.view(observation.line), observation.line)
            if told is not None:
                yield told


def _behind(view: LogView, head: LogLine) -> Told | None:
    columns = {match.start(): int(match["rank"]) for match in _HEAD.finditer(head.text)}
    above: dict[int, str] = dict.fromkeys(columns.values(), "")
    last: dict[int, str] = {}
    where: LogLine | None = None
    for number in view.between(head.number + 1, head.number + _MOST_ROWS):
        row = view.line(number)
        if row is None or _DASHES.fullmatch(row.text):
            continue
        cells = {
            columns[first]: row.text[first:end].strip()
            for first, end in pairwise([*columns, len(row.text)])
        }
        if not any(map(_ENTRY.fullmatch, cells.values())):
            break
        if any(cell and where is not None and not last[rank] for rank, cell in cells.items()):
            return None  # entries were filtered: a blank says nothing
        last, where = cells, row
        above |= {rank: cell for rank, cell in cells.items() if cell}
    behind = [rank for rank, cell in last.items() if not cell]
    waits = [cell for cell in last.values() if cell]
    if where is None or not behind or len(behind) >= len(waits) or len(set(waits)) != 1:
        return None
    if _state(waits[0]) not in _WAITS or any(_state(above[rank]) in _WAITS for rank in behind):
        return None  # whoever waits as well is not whom the others wait for
    return Told(tuple(behind), where, _WORDS)


def _state(cell: str) -> str | None:
    entry = _ENTRY.fullmatch(cell)
    return entry["state"] if entry is not None else None
