"""Pieces that `split` cut out of one log: `x_aa`, `x_ab` and on, or `part-00.log`, `part-01.log`.

Logs of ranks are numbered like that as well. So names alone prove nothing: pieces of one size that end inside a line
do, and pieces that go on where the one before ended; of numbered ones only those that hold one number of lines.
Source: https://www.gnu.org/software/coreutils/manual/html_node/split-invocation.html
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from io import BytesIO

from rerail.lazy_patterns import lazy
from rerail.log_parsers.opening import is_damage
from rerail.log_parsers.sources import Source

_LEAST_NUMBERED = 3  # of two logs of ranks one is the shorter
_LOOKED = 8  # pieces whose ends are looked at
_BLOCK = 1 << 20
_NAME = lazy(
    r"(?P<before>(?:.*[^\d])?)(?P<digits>\d{2,5})(?P<end>\.(?:log|txt|out|err))?$"
    r"|(?P<front>(?:.*[^a-z])?)(?P<letters>[a-z]{2,4})$"
)


def split_logs(sources: Iterable[Source]) -> list[list[Source]]:
    """Return the files that are called as the pieces of one log are, from its first piece on, without a gap."""
    logs: dict[tuple[str, str, int, bool], dict[int, Source]] = defaultdict(dict)
    for source in sources:
        match = _NAME.match(source.name)
        if match is None or source.path is None:
            continue
        letters, digits = match["letters"], match["digits"]
        front = match["front"] or match["before"] or ""
        key = front, match["end"] or "", len(letters or digits), bool(letters)
        logs[key][_counted(letters) if letters else int(digits)] = source
    found = []
    for (*_, letters), pieces in logs.items():
        parts = [pieces[number] for number in sorted(pieces)]
        whole = len(parts) > 1 and sorted(pieces) == list(range(len(parts)))
        if whole and (letters or len(parts) >= _LEAST_NUMBERED):
            found.append(parts)
    return found


def cut_at_lines(parts: Sequence[Source]) -> bool:
    """Tell whether pieces can be those that `split -l` cut: numbered ones hold one number of lines, but the last."""
    match = _NAME.match(parts[0].name)
    if match is None or match["letters"]:
        return True
    first = _lines(parts[0])
    between = all(_lines(part) == first for part in parts[1:-1])
    return first > 0 and between and 0 < _lines(parts[-1]) <= first


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
    try:
        with part.path.open("rb") if part.path is not None else BytesIO() as stream:
            return sum(block.count(b"\n") for block in iter(lambda: stream.read(_BLOCK), b""))
    except OSError as error:
        if not is_damage(error):
            raise
        return 0


def _last_byte(part: Source) -> bytes:
    try:
        if part.path is None or part.size < 1:
            return b""
        with part.path.open("rb") as stream:
            stream.seek(part.size - 1)
            return stream.read(1)
    except OSError as error:
        if not is_damage(error):
            raise
        return b""
