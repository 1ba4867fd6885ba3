"""Remembers what lines show by their text with every digit zeroed, so that it is looked at once.

Most signatures cannot tell one digit from another (`digit_blind`): what one of them finds in a line it
finds in every line with the same zeroed text. The others are remembered by the line word for word; where
such lines never come back, they are looked for with a scanner of their own.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rerail.kept_patterns import kept_pattern
from rerail.late_dataclass import dataclass
from rerail.log_parsers.asked_scanner import AskedScanner, Build
from rerail.log_parsers.compiled_cache import blind_to_digits
from rerail.log_parsers.digit_blind import zero_image
from rerail.log_parsers.line_tables import LineCodes, taken
from rerail.log_parsers.piece import Piece, line_ends, rows_of
from rerail.log_parsers.scan import searchable
from rerail.log_parsers.text import MAX_LINE, ZERO, clean

if TYPE_CHECKING:
    from rerail.log_parsers.scan import Scanner

_MOST = 150_000  # lines remembered
_MOST_BYTES = 24 << 20
_SET_BITS = 32  # of a number that holds a kind and a set


@dataclass(frozen=True, slots=True)
class Seen:
    """Rows of a piece whose lines are of known kinds; `kinds` index the columns of `table`.

    `present` are lines (row, signature) that show signatures of which one line is wanted, the others were not looked at.
    """

    rows: Any
    kinds: Any
    table: KnownLines
    present: Sequence[tuple[int, int]] = ()


class KnownLines:
    """Kinds of lines and what each shows; a kind is a zeroed text, with what only its digits tell."""

    def __init__(
        self,
        patterns: Sequence[str],
        whole: Scanner,
        build: Build,
        build_few: Build,
        once: frozenset[int] = frozenset(),
        cache: Path | None = None,
    ) -> None:
        self._patterns, self._whole, self._build = patterns, whole, build
        self._build_few = build_few
        self._few = AskedScanner(patterns, build_few)
        self._cache = cache
        # The scanners propose one line of a text for these, whatever else shows them.
        self._once = once
        blind = blind_to_digits(patterns, cache)
        self.telling = frozenset(at for at, one in enumerate(blind) if not one)
        """Signatures for which it matters which digits stand in a line."""
        self._of_telling: Scanner | None = None
        self._zeroed, self._exact = LineCodes(zero=True), LineCodes(zero=False)
        # By the codes of zeroed lines their kinds, by those of lines word for word the sets they show.
        self._kind_of, self._shown = array("i"), array("i")
        # By the codes of zeroed lines, which of those that tell digits apart may find something in them.
        self._tells = array("i")
        self._told: dict[frozenset[int], int] = {frozenset(): 0}
        self._with: dict[int, int] = {}  # kinds by another kind and a set that it shows besides
        self._sets: dict[tuple[int, ...], int] = {(): 0}
        self._bytes = 0
        self.texts: list[bytes] = []
        self.members: list[tuple[int, ...]] = [()]
        """Signatures of each set; the first set is empty."""
        self.judged: list[tuple[int, ...]] = [()]
        """Those of each set of which more than one line is wanted."""
        self.light = array("b", [True])
        """Whether a set has none of these."""
        self.sets = array("i")
        """Which set each kind shows."""

    def emptied(self) -> KnownLines:
        """Return a new memory for the same signatures."""
        fresh = KnownLines(
            self._patterns, self._whole, self._build, self._build_few, self._once, self._cache
        )
        fresh._few = self._few
        return fresh

    @property
    def full(self) -> bool:
        """Whether it is time to begin anew."""
        return len(self.texts) + len(self._exact) > _MOST or self._bytes > _MOST_BYTES

    def kinds_of(
        self, piece: Piece, rows: Any, asks: Callable[[int], Iterable[int]]
    ) -> tuple[Any, Any, Any]:
        """Return the kind of some lines by their zeroed text, whose digits may tell more (`told`), and the new ones.

        Args:
            piece: whole lines.
            rows: which of them.
            asks: returns, of a place in `rows`, the signatures that the skeleton of the line asks for.
        """
        import numpy as np

        codes, new = self._zeroed.of(piece, rows)
        if len(new):
            text, _ = taken(piece, rows[new])
            texts = [line + b"\n" for line in text.translate(ZERO).split(b"\n")[:-1]]
            self._learn(texts)
            for place, line in zip(new.tolist(), texts, strict=True):
                telling = self._may_tell(line, self.telling.intersection(asks(place)))
                self._tells.append(self._told.setdefault(telling, len(self._told)))
        kinds = np.frombuffer(self._kind_of, np.int32)[codes].astype(np.int64)
        return kinds, np.frombuffer(self._tells, np.int32)[codes], new

    def told(self, left_out: frozenset[int]) -> list[frozenset[int]]:
        """Return, by the number that `kinds_of` gives, which signatures are to be looked for in a line's digits."""
        return [one - left_out for one in self._told]

    def _may_tell(self, text: bytes, asked: frozenset[int]) -> frozenset[int]:
        """Return which signatures that tell digits apart a line with this zeroed text may show."""
        if len(text) > MAX_LINE or not text.isascii():
            return asked  # a line is shortened before it is held against them
        line = clean(text)
        images = ((index, _image(self._patterns[index])) for index in asked)
        return frozenset(at for at, image in images if image is None or image.search(line))

    def with_digits(self, kinds: Any, at: Any, piece: Piece, rows: Any) -> Any:
        """Change the kinds of some lines to what their digits tell; return the places of new ones.

        Args:
            kinds: kinds of many lines.
            at: the places of these in `kinds`.
            piece: whole lines.
            rows: which of them these are.
        """
        import numpy as np

        codes, new = self._exact.of(piece, rows)
        if len(new):
            text, _ = taken(piece, rows[new])
            self._bytes += len(text)
            found = self._found(text, all_of=True)
            self._shown.extend(self._set(found.get(row, ())) for row in range(len(new)))
        shown = np.frombuffer(self._shown, np.int32)[codes]
        self._join(kinds, at, shown)
        return new

    def with_scanned(
        self, kinds: Any, at: Any, piece: Piece, rows: Any, asked: frozenset[int]
    ) -> None:
        """Do the same for lines that never come back, without remembering them.

        Args:
            kinds: kinds of many lines.
            at: the places of these in `kinds`.
            piece: whole lines.
            rows: which of them these are.
            asked: signatures that these lines may show by their digits.
        """
        import numpy as np

        text = taken(piece, rows)[0]
        few = self._few.of(asked, len(text))
        found = self._found(text) if few is None else self._confirmed(text, few)
        shown = np.zeros(len(rows), np.int32)
        for place, members in found.items():
            shown[place] = self._set(members)
        self._join(kinds, at, shown)

    def _join(self, kinds: Any, at: Any, shown: Any) -> None:
        """Change kinds to those that also show a set of signatures; the empty one changes nothing."""
        import numpy as np

        some = np.flatnonzero(shown)
        if not len(some):
            return
        at, shown = at[some], shown[some]
        pairs, places = np.unique(kinds[at] << _SET_BITS | shown, return_inverse=True)
        joined = [
            self._with[pair] if pair in self._with else self._joined(pair)
            for pair in pairs.tolist()
        ]
        kinds[at] = np.asarray(joined, np.int64)[places]

    def _learn(self, texts: list[bytes]) -> None:
        shown = self._confirmed(b"".join(texts), self._whole, without=self.telling, all_of=True)
        for place, text in enumerate(texts):
            self._kind_of.append(self._kind(text, self._set(shown.get(place, ()))))

    def _set(self, members: tuple[int, ...]) -> int:
        number = self._sets.get(members)
        if number is None:
            number = self._sets[members] = len(self.members)
            self.members.append(members)
            self.judged.append(tuple(at for at in members if at not in self._once))
            self.light.append(not self.judged[number])
        return number

    def _kind(self, text: bytes, number: int) -> int:
        self.texts.append(text)
        self.sets.append(number)
        self._bytes += len(text)
        return len(self.texts) - 1

    def _joined(self, pair: int) -> int:
        kind, shown = pair >> _SET_BITS, pair & ((1 << _SET_BITS) - 1)
        members = {*self.members[self.sets[kind]], *self.members[shown]}
        number = self._set(tuple(sorted(members)))
        found = self._with[pair] = self._kind(self.texts[kind], number)
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


@lru_cache(maxsize=4096)
def _image(pattern: str) -> re.Pattern[str] | None:
    return zero_image(pattern)


@lru_cache(maxsize=4096)
def compiled(pattern: str) -> re.Pattern[str]:
    """Return a pattern that one process compiles once, for all files."""
    return kept_pattern(pattern)
