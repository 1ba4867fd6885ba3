"""Looks into a log file that lies there: lines that hold words, or a window, masked like any other read.

Made for questions after the diagnosis: what was not kept then is still in the file, as long as it exists.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from rerail.domain.evidence import LogLine
from rerail.log_parsers.opening import open_source
from rerail.log_parsers.piece import Piece
from rerail.log_parsers.prefixes import parse_line
from rerail.log_parsers.redactor import Redactor
from rerail.log_parsers.sources import Source, iter_chunks
from rerail.log_parsers.text import clean

_CHUNK = 1 << 19
LIMIT_S = 20.0
"""Seconds after which a search stops and says so."""


def find(source: Source, words: Sequence[str], *, year: int = 1970) -> Iterator[LogLine]:
    """Yield the lines of a file that hold all words, whatever their case.

    Raises:
        OSError: when the file cannot be opened or read.
        TimeoutError: when it is not searched to its end within `LIMIT_S`.
    """
    wanted = [word.lower() for word in words]
    first = [word.lower().encode() for word in words]
    ends = time.monotonic() + LIMIT_S
    for number, raw in pieces(source):
        if time.monotonic() > ends:
            raise TimeoutError(f"only the first {number:,} lines of {source.name} were searched")
        lower = raw.lower()
        if not all(word in lower for word in first):
            continue
        for at, line in enumerate(raw.split(b"\n"), number):
            text = clean(line)
            if all(word in text.lower() for word in wanted):
                yield parse_line(source.name, at, text, origin=source.origin, year=year)


def between(source: Source, first: int, last: int, *, year: int = 1970) -> list[LogLine]:
    """Return the lines of a file from number `first` to `last`, both included.

    Raises:
        OSError: when the file cannot be opened or read.
    """
    found: list[LogLine] = []
    for number, raw in pieces(source):
        count = raw.count(b"\n") + (not raw.endswith(b"\n"))
        if number + count <= first:
            continue
        for at, line in enumerate(raw.split(b"\n"), number):
            if first <= at <= last and (line or at < number + count):
                found.append(
                    parse_line(source.name, at, clean(line), origin=source.origin, year=year)
                )
        if number + count > last:
            break
    return found


def pieces(source: Source) -> Iterator[tuple[int, bytes]]:
    """Yield (number of its first line, masked bytes) of whole lines."""
    number = 1
    redactor = Redactor()
    with open_source(source) as stream:
        for chunk in iter_chunks(stream, _CHUNK):
            yield number, redactor.mask(Piece(chunk), number, tally=False).raw
            number += chunk.count(b"\n")
