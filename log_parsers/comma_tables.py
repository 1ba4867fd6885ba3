"""Logs exported as comma-separated values: the titles in the first line say in which column the host or the rank stands.

Datadog exports `Date,Host,Service,Message`, other services other columns; titles are read as the names of fields of
records are (`json_records.yaml`).
"""

from __future__ import annotations

from collections.abc import Sequence

from rerail.log_parsers.json_records import kind_of_field, tells_the_message, tells_the_time
from rerail.log_parsers.labels import INDUCED, Label
from rerail.log_parsers.timestamps import find_stamp

_LEAST_COLUMNS, _MOST_COLUMNS, _LONGEST_TITLE = 2, 16, 40
_LEAST_LINES, _NEARLY_ALL = 3, 0.8
_CELL = r'"?({slot}[^",\n]*)"?'
_SLOTS = {"node": "?P<node>", "place": "?P<place>", "rank": "?P<rank>", "local": "?P<local>"}


def columns_in_front(lines: Sequence[str], *, year: int) -> tuple[Label, ...]:
    """Return the label that the columns in front of the messages are, or none where a file is no such table.

    Args:
        lines: the first lines of a file, its very first one included.
        year: of stamps that carry none.
    """
    told = [line for line in lines if line.strip()]
    if len(told) < _LEAST_LINES or "," not in told[0]:
        return ()
    import csv

    titles = next(csv.reader(told[:1]), [])
    if not _LEAST_COLUMNS <= len(titles) <= _MOST_COLUMNS or not all(map(_is_title, titles)):
        return ()
    kinds = [kind_of_field(title) for title in titles]
    message = next((at for at, title in enumerate(titles) if tells_the_message(title)), None)
    if message is None or not any(kinds[:message]):
        return ()
    rows = told[1:]
    if sum(line.count(",") >= message for line in rows) < _NEARLY_ALL * len(rows):
        return ()
    first = 1 if tells_the_time(titles[0]) and _begin_with_times(rows, year) else 0
    cells = [
        _CELL.format(slot=_SLOTS[kind] if kind and kind not in kinds[:at] else "?:")
        for at, kind in enumerate(kinds[:message])
    ][first:]
    return (Label(INDUCED, "collector", "," * first + ",".join(cells) + ',"?'),)


def _is_title(text: str) -> bool:
    word = text.strip()
    return 0 < len(word) <= _LONGEST_TITLE and not word[0].isdigit() and word.isascii()


def _begin_with_times(rows: Sequence[str], year: int) -> bool:
    stamps = [find_stamp(row, year=year) for row in rows]
    return all(stamp is not None and stamp.start <= 1 for stamp in stamps)
