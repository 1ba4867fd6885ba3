"""Which of many labels is the first to match at a place of a line: asked of all at once, where many lines ask."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from rerail.log_parsers.pattern_union import union_of, which

_PAYS = 400  # questions behind which one pattern of all, which takes milliseconds to compile, is worth it


class LabelChoice:
    """Patterns in the order in which they are tried; `places` leaves out those that cannot match."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._asked = [0] * len(texts)
        self._unions: dict[int, re.Pattern[str] | None] = {}

    def places(self, text: str, at: int) -> Iterable[int]:
        """Return, in order, the places of all patterns that match at an offset, and maybe of others."""
        if self._texts and self._asked[0] < _PAYS - 1:
            self._asked[0] += 1
            return range(len(self._texts))
        return self._told(text, at)

    def _told(self, text: str, at: int) -> Iterator[int]:
        place = 0
        while (place := self._next(text, at, place)) < len(self._texts):
            yield place
            place += 1

    def _next(self, text: str, at: int, first: int) -> int:
        """Return the first place from `first` on that may match, the number of all where none does."""
        if first >= len(self._texts):
            return first
        union = self._unions.get(first)
        if union is None:
            self._asked[first] += 1
            if self._asked[first] < _PAYS or first in self._unions:
                return first
            union = self._unions[first] = union_of(self._texts[first:])
            if union is None:
                return first
        found = which(union.match(text, at))
        return len(self._texts) if found is None else first + found
