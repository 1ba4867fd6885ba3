"""A window of a plain log file by byte offset: as quick in a file of gigabytes as in a small one.

Lines are masked and cleaned as in every other read. The number of a line is counted from the nearest place that
was noted when the file was diagnosed; where none was, it costs one pass over the file's line ends, kept for as long
as the file is the same.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from rerail.domain.evidence import LogLine
from rerail.errors import ConfigError
from rerail.log_parsers.line_marks import Marks
from rerail.log_parsers.opening import is_packed
from rerail.log_parsers.piece import Piece, line_ends
from rerail.log_parsers.prefixes import parse_line
from rerail.log_parsers.redactor import Redactor
from rerail.log_parsers.sources import Source
from rerail.log_parsers.text import clean

LONGEST_LINE = 1 << 16
_BLOCK = 1 << 24
_STEP = 1 << 20
_EVERY = 4096
_WARM = 1 << 16
"""Bytes that are read in front of a window, so that a secret of several lines is seen to begin."""
_CACHE: OrderedDict[tuple[str, int, int], LineIndex] = OrderedDict()
_MOST_CACHED = 32
_LOCK = Lock()


@dataclass(frozen=True, slots=True)
class LineIndex:
    """Where every 4,096th line of a file begins; `lines` is how many there are."""

    starts: np.ndarray
    lines: int
    size: int


@dataclass(frozen=True, slots=True)
class Window:
    """Some lines of a file: `offset` is where they begin, `after` where the next window begins."""

    lines: tuple[LogLine, ...]
    offset: int
    after: int
    size: int


def index_of(path: Path) -> LineIndex:
    """Return the line index of a file, kept while size and time of change stay.

    Raises:
        OSError: The file cannot be read.
    """
    stat = path.stat()
    key = (str(path), stat.st_size, stat.st_mtime_ns)
    with _LOCK:
        if key in _CACHE:
            _CACHE.move_to_end(key)
            return _CACHE[key]
    found = _count(path)
    with _LOCK:
        _CACHE[key] = found
        while len(_CACHE) > _MOST_CACHED:
            _CACHE.popitem(last=False)
    return found


def _count(path: Path) -> LineIndex:
    starts, seen, at = [0], 0, 0
    ends_open = False
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            ends = np.flatnonzero(np.frombuffer(block, np.uint8) == 0x0A)
            # The line that begins behind the n-th line end is number n + 1, counted from 0.
            first = (-seen - 1) % _EVERY
            starts += (ends[first::_EVERY] + at + 1).tolist()
            seen += len(ends)
            at += len(block)
            ends_open = not block.endswith(b"\n")
    return LineIndex(np.asarray(starts, np.int64), seen + ends_open, at)


def offset_of(path: Path, number: int, marks: Marks = ()) -> int:
    """Return the byte at which a line begins; lines are counted from 1, one behind the last is the last.

    Args:
        path: the file.
        number: the line.
        marks: where some of its lines begin, if known: then only what lies between two is read.

    Raises:
        OSError: The file cannot be read.
    """
    line, at = _mark(path, marks, 0, number)
    left, found, size = max(1, number) - line, at, path.stat().st_size
    with path.open("rb") as file:
        file.seek(at)
        while left and (block := file.read(_STEP)):
            ends = line_ends(block)
            taken = min(left, len(ends))
            found = at + int(ends[taken - 1]) + 1 if taken else found
            left, at = left - taken, at + len(block)
    return found if found < size or not size else _line_start(path, size - 1)


def number_at(path: Path, offset: int, marks: Marks = ()) -> int:
    """Return the number of the line that holds a byte; `marks` as for `offset_of`.

    Raises:
        OSError: The file cannot be read.
    """
    line, at = _mark(path, marks, 1, offset)
    with path.open("rb") as file:
        file.seek(at)
        while block := file.read(min(_STEP, max(0, offset - at))):
            line, at = line + block.count(b"\n"), at + len(block)
    return line


def _mark(path: Path, marks: Marks, column: int, wanted: int) -> tuple[int, int]:
    """Return the last (line, byte) that is known and not behind what is wanted."""
    if marks:
        behind = bisect_right(marks, wanted, key=itemgetter(column))
        return marks[behind - 1] if behind else (1, 0)
    index = index_of(path)
    if column:
        block = int(np.searchsorted(index.starts, wanted, side="right")) - 1
    else:
        block = min(max(0, wanted - 1) // _EVERY, len(index.starts) - 1)
    return block * _EVERY + 1, int(index.starts[block])


def window_at(
    source: Source, offset: int, count: int, *, year: int = 1970, marks: Marks = ()
) -> Window:
    """Return up to `count` lines from the line that holds a byte; longer lines are cut. `marks` as for `offset_of`.

    Raises:
        OSError: The file cannot be read.
    """
    path = _path(source)
    size = path.stat().st_size
    start = _line_start(path, max(0, min(offset, max(0, size - 1))))
    begin = _line_start(path, max(0, start - _WARM))
    with path.open("rb") as file:
        file.seek(begin)
        before = file.read(start - begin)
        rows = [row for _ in range(count) if (row := file.readline(LONGEST_LINE))]
        after = file.tell()
    number = number_at(path, start, marks)
    skipped = before.count(b"\n")
    masked = Redactor().mask(Piece(before + b"".join(rows)), number - skipped, tally=False).raw
    kept = masked.split(b"\n")[skipped : skipped + len(rows)]
    lines = tuple(
        parse_line(source.name, number + i, clean(raw), origin=source.origin, year=year)
        for i, raw in enumerate(kept)
    )
    return Window(lines, start, after, size)


def _path(source: Source) -> Path:
    if source.path is None:
        raise FileNotFoundError(source.name)
    return source.path


def before(path: Path, offset: int, count: int) -> int:
    """Return the byte at which the `count` lines in front of a byte begin.

    Raises:
        OSError: The file cannot be read.
    """
    at, found = offset, b""
    while at > 0 and found.count(b"\n") <= count and offset - at < count * LONGEST_LINE:
        step = min(at, 1 << 16)
        at -= step
        with path.open("rb") as file:
            file.seek(at)
            found = file.read(step) + found
    rows = found.split(b"\n")
    # The last piece is the beginning of the line at `offset`, empty where that begins a line.
    kept = rows[-count - 1 :]
    return max(0, offset - sum(len(row) + 1 for row in kept[:-1]) - len(kept[-1]))


def search(path: Path, pattern: str, *, start: int = 0, most: int = 100) -> Iterator[int]:
    """Yield where lines begin that a pattern matches, from a byte on; time is linear in the file.

    Raises:
        ValueError: The pattern cannot be used; the text says why.
        ConfigError: google-re2 is not installed.
        OSError: The file cannot be read.
    """
    wanted = compiled(pattern)
    told = 0
    with path.open("rb") as file:
        file.seek(start)
        at, rest = start, b""
        while block := file.read(_BLOCK):
            block = rest + block
            cut = (block.rfind(b"\n") + 1) or len(block)
            rest, whole = block[cut:], block[:cut]
            for line in _matching(wanted, whole):
                yield at + line
                told += 1
                if told >= most:
                    return
            at += len(whole)
        for line in _matching(wanted, rest):
            yield at + line


def compiled(pattern: str) -> Any:
    """Return a pattern of google-re2 over bytes, upper and lower case alike.

    Raises:
        ValueError: The pattern cannot be used; the text says why.
        ConfigError: google-re2 is not installed.
    """
    try:
        import re2
    except ModuleNotFoundError:
        raise ConfigError(
            "searching by pattern needs google-re2", subject="re2", hint="pip install 'rerail[web]'"
        ) from None
    options = re2.Options()
    options.case_sensitive, options.never_nl, options.log_errors = False, True, False
    options.encoding = re2.Options.Encoding.LATIN1
    try:
        return re2.compile(pattern.encode(), options)
    except (re2.error, UnicodeEncodeError) as error:
        told = error.args[0] if error.args else error
        raise ValueError(told.decode() if isinstance(told, bytes) else str(told)) from None


def _matching(wanted: Any, block: bytes) -> Iterator[int]:
    """Yield where the lines of a block begin that match, each once."""
    at = 0
    while at < len(block):
        match = wanted.search(block, at)
        if match is None:
            return
        line = block.rfind(b"\n", 0, match.start()) + 1
        yield line
        end = block.find(b"\n", max(match.end() - 1, line))
        at = len(block) if end < 0 else end + 1


def _line_start(path: Path, offset: int) -> int:
    begin = max(0, offset - LONGEST_LINE)
    with path.open("rb") as file:
        file.seek(begin)
        held = file.read(offset - begin)
    found = held.rfind(b"\n")
    return begin + found + 1 if found >= 0 else begin


def is_plain(path: Path) -> bool:
    """Tell whether a file is no packed one, by its first bytes."""
    try:
        with path.open("rb") as file:
            return not is_packed(file.read(6))
    except OSError:
        return False
