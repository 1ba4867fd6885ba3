"""What a pattern looks for behind a wide gap, for lines that hold what stands before it."""

from __future__ import annotations

import re
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

_FAR = 100  # characters of a wide gap
_TELLING = 9  # characters that a match must hold behind it

_PIECES = re.compile(
    r"(?P<gap>\.(?:\{0,(?P<width>\d+)\}|(?P<any>\*))\??)|(?P<open>\()|(?P<close>\))|(?P<or>\|)"
    r"|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|."
)


def behind_far_gap(pattern: str) -> str | None:
    """Return what a pattern looks for behind its first wide gap: it finds no line less.

    To count hundreds of bytes from `iteration` to `nan iterations: 1` on every step line costs an
    engine more than all other signatures of that line; the words behind the gap alone do not.

    Returns:
        None where there is no such gap, or too little stands behind it.
    """
    flags = pattern[:4] if pattern.startswith("(?i)") else ""
    depth = 0
    for piece in _PIECES.finditer(pattern, len(flags)):
        depth += (piece["open"] is not None) - (piece["close"] is not None)
        if depth:
            continue
        if piece["or"]:
            return None
        if piece["any"] or (piece["width"] and int(piece["width"]) >= _FAR):
            rest = flags + pattern[piece.end() :]
            try:
                telling = _told(parser.parse(rest)) >= _TELLING
            except re.error:  # it speaks of a group in front of the gap
                telling = False
            return rest if telling else None
    return None


def _told(items: Any) -> int:
    """Return how many characters every match of a sequence holds."""
    told = 0
    for operator, value in items:
        if operator is sre.LITERAL:
            told += 1
        elif operator is sre.SUBPATTERN:
            told += _told(value[3])
        elif operator is sre.BRANCH:
            told += min(_told(branch) for branch in value[1])
        elif operator in (sre.MAX_REPEAT, sre.MIN_REPEAT) and value[0]:
            told += _told(value[2])
    return told
