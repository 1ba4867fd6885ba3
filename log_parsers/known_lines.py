"""Remembers what lines show by their text with every digit zeroed, so that it is looked at once.

Most signatures cannot tell one digit from another (`digit_blind`): what one of them finds in a line it
finds in every line with the same zeroed text. The others are remembered by the line word for word; where
such lines never come back, they are looked for with a scanner of their own.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from rerail.log_parsers.digit_blind import digit_blind
from rerail.log_parsers.piece import line_ends, rows_of
from rerail.log_parsers.scan import searchable
from rerail.log_parsers.text import ZERO, clean

if TYPE_CHECKING:
    from rerail.log_parsers.scan import Scanner

_MOST = 150_000  # lines remembered
_MOST_BYTES = 24 << 20


@dataclass(frozen=True, slots=True)
class Seen:
    """Rows of a piece whose lines are of known kinds; `kinds` index the columns of `table`."""

    rows: Any
    kinds: Any
    table: KnownLines


class KnownLines:
    """Kinds of lines and what each shows; a kind is a zeroed text, with what only its digits tell."""

    def __init__(
        self,
        patterns: Sequence[str],
        whole: Scanner,
        build: Callable[[Sequence[int], Sequence[str]], Scanner],
        once: frozenset[int] = frozenset(),
    ) -> None:
        self._patterns, self._whole, self._build = patterns, whole, build
        # The scanners propose one line of a text for these, whatever else shows them.
        self._once = once
        self.telling = _telling(tuple(patterns))
        """Signatures for which it matters which digits stand in a line."""
        self._of_telling: Scanner | None = None
        self._zeroed: dict[bytes, int] = {}
        self._exact: dict[bytes, tuple[int, ...]] = {}
        self._with: dict[tuple[int, tuple[int, ...]], int] = {}
        self._sets: dict[tuple[int, ...], int] = {(): 0}
        self._bytes = 0
        self.texts: list[bytes] = []
        self.members: list[tuple[int, ...]] = [()]
        """Signatures of each set; the first set is empty."""
        self.sets = array("i")
        """Which set each kind shows."""

    @property
    def full(self) -> bool:
        """Whether it is time to begin anew."""
        return len(self.texts) + len(self._exact) > _MOST or self._bytes > _MOST_BYTES

    def kinds_of(self, lines: Any) -> tuple[Any, Any]:
        """Return the kind of each line by its zeroed text, and the places of those that are new.

        Args:
            lines: an Arrow array of whole lines, with their newlines.
        """
        import numpy as np
        import pyarrow as pa

        _, offsets, values = lines.buffers()
        zeroed = pa.Array.from_buffers(
            pa.binary(),
            len(lines),
            [None, offsets, pa.py_buffer(values.to_pybytes().translate(ZERO))],
        )
        texts, codes = _encoded(zeroed)
        new = [at for at, text in enumerate(texts) if text not in self._zeroed]
        if new:
            self._learn([texts[at] for at in new])
        known = np.fromiter(map(self._zeroed.__getitem__, texts), np.int64, len(texts))
        return known[codes], _firsts(codes, len(texts), new)

    def with_digits(self, kinds: Any, at: Any, lines: Any) -> Any:
        """Change the kinds of some lines to what their digits tell; return the places of new ones.

        Args:
            kinds: kinds of many lines.
            at: the places of these in `kinds`.
            lines: an Arrow array of them.
        """
        import numpy as np

        texts, codes = _encoded(lines)
        new = [place for place, text in enumerate(texts) if text not in self._exact]
        if new:
            found = self._found(b"".join(texts[place] for place in new), all_of=True)
            for row, place in enumerate(new):
                self._exact[texts[place]] = found.get(row, ())
                self._bytes += len(texts[place])
        telling = np.fromiter((bool(self._exact[t]) for t in texts), np.bool_, len(texts))
        for place in np.flatnonzero(telling[codes]).tolist():
            kinds[at[place]] = self._joined(int(kinds[at[place]]), self._exact[texts[codes[place]]])
        return _firsts(codes, len(texts), new)

    def with_scanned(self, kinds: Any, at: Any, lines: Any) -> None:
        """Do the same for lines that never come back, without remembering them."""
        text = lines.buffers()[2].to_pybytes()
        for place, shown in self._found(text).items():
            kinds[at[place]] = self._joined(int(kinds[at[place]]), shown)

    def _learn(self, texts: list[bytes]) -> None:
        shown = self._confirmed(b"".join(texts), self._whole, without=self.telling, all_of=True)
        for place, text in enumerate(texts):
            self._zeroed[text] = self._kind(text, shown.get(place, ()))

    def _kind(self, text: bytes, members: tuple[int, ...]) -> int:
        number = self._sets.get(members)
        if number is None:
            number = self._sets[members] = len(self.members)
            self.members.append(members)
        self.texts.append(text)
        self.sets.append(number)
        self._bytes += len(text)
        return len(self.texts) - 1

    def _joined(self, kind: int, shown: tuple[int, ...]) -> int:
        found = self._with.get((kind, shown))
        if found is None:
            members = tuple(sorted({*self.members[self.sets[kind]], *shown}))
            found = self._with[kind, shown] = self._kind(self.texts[kind], members)
        return found

    def _found(self, text: bytes, *, all_of: bool = False) -> dict[int, tuple[int, ...]]:
        if self._of_telling is None:
            numbers = sorted(self.telling)
            self._of_telling = self._build(numbers, [self._patterns[at] for at in numbers])
        return self._confirmed(text, self._of_telling, all_of=all_of)

    def _confirmed(
        self,
        raw: bytes,
        scanner: Scanner,
        without: frozenset[int] = frozenset(),
        *,
        all_of: bool = False,
    ) -> dict[int, tuple[int, ...]]:
        """Return what each line of a text shows, by row; with `all_of` also what is proposed once in a text."""
        text = searchable(raw)
        candidates = scanner.candidates(text, without)
        if not candidates:
            return {}
        rows = rows_of([max(end - 1, 0) for end, _ in candidates], line_ends(text))
        lines = raw.removesuffix(b"\n").split(b"\n")
        proposed = {(row, index) for row, (_, index) in zip(rows, candidates, strict=True)}
        if all_of and (once := self._once.intersection(index for _, index in proposed)):
            proposed.update((row, index) for row in range(len(lines)) for index in once)
        pairs = sorted(proposed)
        found: dict[int, tuple[int, ...]] = {}
        for row, group in groupby(pairs, itemgetter(0)):
            line = clean(lines[row])
            shown = tuple(at for _, at in group if compiled(self._patterns[at]).search(line))
            if shown:
                found[row] = shown
        return found


def _encoded(lines: Any) -> tuple[list[bytes], Any]:
    encoded = lines.dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy()


def _firsts(codes: Any, count: int, wanted: list[int]) -> Any:
    """Return at which place each wanted code stands first."""
    import numpy as np

    first = np.empty(count, np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return first[wanted]


@lru_cache(maxsize=8)
def _telling(patterns: tuple[str, ...]) -> frozenset[int]:
    return frozenset(at for at, pattern in enumerate(patterns) if not digit_blind(pattern))


@lru_cache(maxsize=4096)
def compiled(pattern: str) -> re.Pattern[str]:
    """Return a pattern that one process compiles once, for all files."""
    return re.compile(pattern)
