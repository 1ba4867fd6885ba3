"""Who may have written a line that no known label marks, by the first numbers in it.

What stands in front of such lines means something only once all of a file is read: `[3]`, `r3|` and `{"rank": 3` may
be learned to be labels then, and PyTorch names the rank in the line itself. Until then lines that differ in their
first numbers, times and counters aside, are taken to be of different writers; their beginnings are kept to be read later.
"""

from __future__ import annotations

import re
from array import array
from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache
from itertools import islice

from rerail.cached_yaml import load_cached
from rerail.kept_patterns import kept_pattern
from rerail.log_parsers.front_table import MOST_STREAMS
from rerail.log_parsers.labels import PATH
from rerail.log_parsers.text import ZERO

FIRST = MOST_STREAMS
"""The stream of the first voice; those of labels are below."""

NUMBERS_SAID = 200
"""Bytes of a line, as many as are kept and looked at for a number that it says it has."""

_FRONT = 64
_MOST, _MOST_OF_ONE = 1 << 18, 1 << 17  # of all, of what lines show together
_FIRST_NUMBERS = 2
_SHAPES = 20_000
_TIMES = (
    r"\d{2,4}[-/.]\d\d[-/.]\d\d|\d\d:\d\d:\d\d(?:[.,]\d+)?|\b[A-Z]\d{3,4} (?=\d\d:)|\d{7,}|\d+\.\d+"
)


@lru_cache(maxsize=1)
def _numbers() -> re.Pattern[bytes]:
    """Return what finds times, fractions and counters, and else a number."""
    counters = "|".join(load_cached(PATH)["words"]["counter"])
    return kept_pattern(rf"{_TIMES}|(?i:\b(?:{counters}))[ :=#]{{0,2}}\d+(?:\.\d+)?|(\d+)".encode())


@lru_cache(maxsize=1)
def says_its_number() -> re.Pattern[bytes]:
    """Return what a line says that its writer's number is, in its group of processes."""
    return kept_pattern(load_cached(PATH)["says_its_number"].encode())


class Voices:
    """The voices of one file, numbered in order of appearance."""

    def __init__(self) -> None:
        self.examples: list[bytes] = []
        self.ends = array("i")
        self._shapes: dict[bytes, tuple[tuple[int, int], ...]] = {}
        self._ids: dict[bytes, int] = {}
        self._of: defaultdict[int, int] = defaultdict(int)

    def of(self, lines: Iterable[bytes], number: int) -> list[int]:
        """Return the streams of lines that show one set of signatures, given its number; 0 where there is none."""
        said, found = says_its_number(), []
        for line in lines:
            line = line[:NUMBERS_SAID]
            shape = line[:_FRONT].translate(ZERO)
            places = self._shapes.get(shape)
            if places is None:
                places = self._learn(shape)
            parts = [line[start:stop] for start, stop in places]
            if (own := said.search(line)) is not None:
                parts.append(own[1])
            found.append(self._number(b" ".join(parts), line, number) if parts else 0)
        return found

    def _learn(self, shape: bytes) -> tuple[tuple[int, int], ...]:
        """Return where the first numbers stand in lines that begin so, all digits zeroed."""
        if len(self._shapes) >= _SHAPES:
            self._shapes.clear()
        spans = (match.span(1) for match in _numbers().finditer(shape) if match.lastindex)
        places = self._shapes[shape] = tuple(islice(spans, _FIRST_NUMBERS))
        return places

    def _number(self, key: bytes, line: bytes, number: int) -> int:
        known = self._ids.get(key)
        if known is None:
            if len(self._ids) >= _MOST or self._of[number] >= _MOST_OF_ONE:
                return 0
            known = self._ids[key] = FIRST + len(self._ids)
            self._of[number] += 1
            self.examples.append(line)
            self.ends.append(min(len(line), _FRONT))
        return known
