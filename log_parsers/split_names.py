"""Pieces that `split` cut out of one log: `xaa`, `xab` and on, `part-00.log`, `part-01.log`, or `train.log.00`.

Logs of ranks are numbered like that as well. So names alone prove nothing: pieces of one size that end inside a line
do, and pieces that go on where the one before ended; of numbered ones only those that hold one number of lines.
Source: https://www.gnu.org/software/coreutils/manual/html_node/split-invocation.html
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import BinaryIO, TypeVar

from rerail.lazy_patterns import lazy
from rerail.log_parsers.opening import is_damage
from rerail.log_parsers.sources import Source

_LEAST_NUMBERED = 3  # of two logs of ranks one is the shorter
_LOOKED = 8  # pieces whose ends are looked at
_BLOCK = 1 << 20
_WIDTHS = range(2, 5)  # letters that count
_NAME = lazy(
    r"(?P<before>(?:.*[^\d])?)(?P<digits>\d{2,5})(?P<end>\.(?:log|txt|out|err))?$"
    r"|(?P<front>(?:.*[^a-z])?)(?P<letters>[a-z]{2,24})$"
)
_Told = TypeVar("_Told")
_Log = tuple[str, str, int, bool]
"""What stands in front of the count in a name and behind it, how wide it is, whether letters count."""


def split_logs(sources: Iterable[Source]) -> list[list[Source]]:
    """Return the files that are called as the pieces of one log are, from its first piece on, without a gap.

    Where a name ends in letters, any number of them may be the prefix that `split` was given: `x` is its own.
    """
    logs: dict[_Log, dict[int, Source]] = defaultdict(dict)
    for source in sources:
        for log, number in _counted_names(source.name) if source.path is not None else ():
            logs[log][number] = source
    found: list[list[Source]] = []
    taken: set[str] = set()
    for (*_, letters), pieces in sorted(logs.items(), key=lambda one: -one[0][2]):
        parts = [pieces[number] for number in sorted(pieces)]
        whole = len(parts) > 1 and sorted(pieces) == list(range(len(parts)))
        names = {part.name for part in parts}
        if whole and (letters or len(parts) >= _LEAST_NUMBERED) and taken.isdisjoint(names):
            found.append(parts)
            taken |= names
    return found


def _counted_names(name: str) -> Iterator[tuple[_Log, int]]:
    """Yield the logs of which a file may be a piece by its name, each with the number of the piece."""
    match = _NAME.match(name)
    if match is None:
        return
    if digits := match["digits"]:
        yield (match["before"], match["end"] or "", len(digits), False), int(digits)
        return
    front, letters = match["front"], match["letters"]
    for width in _WIDTHS:
        if width <= len(letters):
            own = letters[-width:]
            yield (front + letters[:-width], "", width, True), _counted(own)


def cut_at_lines(parts: Sequence[Source]) -> bool:
    """Tell whether pieces can be those that `split` cut at lines.

    Numbered ones hold one number of lines, but the last (`-l`), or as many as one size has room for (`-C`).
    """
    match = _NAME.match(parts[0].name)
    if match is None or match["letters"] or _as_many_as_fit(parts):
        return True
    first = _lines(parts[0])
    between = all(_lines(part) == first for part in parts[1:-1])
    return first > 0 and between and 0 < _lines(parts[-1]) <= first


def _as_many_as_fit(parts: Sequence[Source]) -> bool:
    """Tell whether one size is room for every piece, and for none with the first line of the next one as well."""
    fuller = [part.size + _first_line(after) for part, after in pairwise(parts)]
    return max(part.size for part in parts) < min(fuller)


def cut_inside_lines(parts: Sequence[Source]) -> bool:
    """Tell whether pieces of one size end inside a line, as no writer ends a file."""
    if not _of_one_size(parts):
        return False
    ends = [_last_byte(part) for part in parts[:-1][:_LOOKED]]
    return sum(end not in (b"", b"\n") for end in ends) * 2 > len(ends)


def _of_one_size(parts: Sequence[Source]) -> bool:
    """Tell whether all pieces but the last, which may be shorter, have one size."""
    *whole, last = (part.size for part in parts)
    return len(set(whole)) == 1 and 0 < last <= whole[0]


def _counted(letters: str) -> int:
    number = 0
    for letter in letters:
        number = number * 26 + ord(letter) - ord("a")
    return number


def _lines(part: Source) -> int:
    """Return the number of lines of a plain file, or 0 where it cannot be read."""
    return _asked(
        part,
        lambda stream: sum(block.count(b"\n") for block in iter(lambda: stream.read(_BLOCK), b"")),
        0,
    )


def _first_line(part: Source) -> int:
    """Return the length of the first line of a plain file, or 0 where it cannot be read."""
    return _asked(part, lambda stream: len(stream.readline(_BLOCK)), 0)


def _last_byte(part: Source) -> bytes:
    def last(stream: BinaryIO) -> bytes:
        stream.seek(part.size - 1)
        return stream.read(1)

    return _asked(part, last, b"") if part.size > 0 else b""


def _asked(part: Source, ask: Callable[[BinaryIO], _Told], nothing: _Told) -> _Told:
    """Return what a plain file tells, or nothing where it cannot be read."""
    if part.path is None:
        return nothing
    try:
        with part.path.open("rb") as stream:
            return ask(stream)
    except OSError as error:
        if not is_damage(error):
            raise
        return nothing
