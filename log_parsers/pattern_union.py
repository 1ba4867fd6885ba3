"""One pattern in place of many: which of them matches first is asked of all at once."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rerail.kept_patterns import kept_pattern
from rerail.lazy_patterns import lazy

_NAMED = lazy(r"\(\?P<\w+>")
_BACK_REFERENCE = lazy(r"\\[1-9]|\(\?P=|\(\?\(")


def union_of(texts: Sequence[str]) -> re.Pattern[str] | None:
    """Return a pattern that matches where one of some patterns does, or None where they do not join.

    Of those that match at one place it takes the first; `which` tells which that was.
    """
    if any(_BACK_REFERENCE.search(text) for text in texts):
        return None
    parts = (f"(?P<_{at}>{_NAMED.sub('(?:', text)})" for at, text in enumerate(texts))
    try:
        return kept_pattern("|".join(parts))
    except re.error:
        return None


def which(match: re.Match[str] | None) -> int | None:
    """Return the place among its patterns of the one that a union matched; None where none did."""
    if match is None or match.lastgroup is None:
        return None
    return int(match.lastgroup.removeprefix("_"))
