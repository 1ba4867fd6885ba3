"""A line that a signature may match, and what makes it the same as another one."""

from __future__ import annotations

from dataclasses import dataclass

_VARIES = b"0123456789abcdef"  # deleted, lines of one wording are equal; see skeletons


@dataclass(slots=True)
class CandidateLine:
    """A line whose candidates are looked at; `fresh` tells of the last one whether the hit is to be kept."""

    raw: bytes
    stem: bytes
    stream: int
    number: int
    text: str | None = None
    fresh: bool = False


def stem(raw: bytes) -> bytes:
    """Return the beginning of a line without what varies from line to line of one wording."""
    return raw[:400].translate(None, _VARIES)


def bounded(raw: bytes) -> bytes:
    """Return a line, or head and end of one that is longer than 64 KB."""
    return raw if len(raw) <= 65536 else raw[:32768] + raw[-32768:]
