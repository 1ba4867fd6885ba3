"""A line that a signature may match, and what makes it the same as another one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from operator import attrgetter

from rerail.late_dataclass import dataclass
from rerail.log_parsers.known_lines import compiled
from rerail.log_parsers.scan import Signature
from rerail.log_parsers.text import clean

_VARIES = b"0123456789abcdef"  # deleted, lines of one wording are equal; see skeletons
_ORDER = attrgetter("order")


@dataclass(slots=True)
class CandidateLine:
    """A line whose candidates are looked at; `fresh` are those whose hit may be kept, `new` those of a new writer."""

    raw: bytes
    stem: bytes
    stream: int
    number: int
    text: str | None = None
    fresh: list[int] = field(default_factory=list)
    new: list[int] = field(default_factory=list)


def stem(raw: bytes) -> bytes:
    """Return the beginning of a line without what varies from line to line of one wording."""
    return raw[:400].translate(None, _VARIES)


def is_harmless(shown: Iterable[Signature], line: CandidateLine) -> bool:
    """Tell whether what counts of all that a line shows is harmless."""
    first = min(shown, key=_ORDER)
    if not first.harmless or not first.unless:
        return first.harmless
    return compiled(first.unless).search(line.text or clean(line.raw)) is None


def bounded(raw: bytes) -> bytes:
    """Return a line, or head and end of one that is longer than 64 KB."""
    return raw if len(raw) <= 65536 else raw[:32768] + raw[-32768:]
