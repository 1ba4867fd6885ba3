"""Lines in which patterns were looked for and nothing was found, known by their text with every digit zeroed.

And kinds of lines, known by their skeletons: of one that never showed anything in tens of thousands of lines some
lines of each piece are looked at, and all of them as soon as one shows something.

What a pattern that cannot tell one digit from another does not find in a line, it does not find in any line that
differs from it in digits alone. Programs print the same lines again and again, on all ranks.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from rerail.log_parsers.line_tables import LineCodes
from rerail.log_parsers.piece import Piece
from rerail.log_parsers.tallies import Tally

_MOST = 50_000  # lines
_SURELY = 4_000  # lines of a kind
_SOME = 64  # lines of a kind in a piece
_KINDS = 20_000


class BarrenLines:
    """Remembers such lines for one set of patterns; serves all files of a thread."""

    def __init__(self) -> None:
        self._lines, self._barren = LineCodes(zero=True), array("b")
        self._codes: Any = None
        self._rows: Any = None

    def others(self, piece: Piece, rows: Any) -> Any:
        """Return the rows of the lines that are to be looked at, of some rows of a piece; both numpy arrays."""
        import numpy as np

        if len(self._lines) > _MOST:
            self._lines, self._barren = LineCodes(zero=True), array("b")
        codes, _ = self._lines.of(piece, rows)
        self._barren.frombytes(bytes(len(self._lines) - len(self._barren)))
        left = np.flatnonzero(np.frombuffer(self._barren, np.bool_)[codes] == 0)
        self._rows, self._codes = rows[left], codes[left]
        return self._rows

    def found(self, rows: Iterable[int]) -> None:
        """Take in on which rows something was found; of the others that `others` returned last nothing was."""
        import numpy as np

        barren = np.ones(int(self._rows[-1]) + 1, np.bool_)
        barren[np.fromiter(rows, np.int64)] = False
        empty = barren[self._rows]
        for code in set(self._codes[empty].tolist()):
            self._barren[code] = 1


class BarrenKinds:
    """Remembers such kinds in one file.

    Attributes:
        left_out: Whether `some` left out rows of the piece it was asked for last.
    """

    def __init__(self) -> None:
        self._lines: defaultdict[bytes, int] = defaultdict(int)
        self._told: set[bytes] = set()
        self._keys: Sequence[bytes] = ()
        self._rows: Any = None
        self._codes: Any = None
        self._counts: list[int] = []
        self._there: list[int] = []
        self._away: dict[int, Any] = {}
        self.left_out = False

    def some(self, tally: Tally | None, rows: Any) -> Any:
        """Return the rows that are to be looked at, of some rows of a piece; both numpy arrays."""
        import numpy as np

        self._codes, self._away, self.left_out = None, {}, False
        if tally is None or tally.codes is None or tally.lines is not None:
            return rows
        self._keys, self._rows, self._codes = tally.keys, rows, tally.codes[rows]
        self._counts = counts = np.bincount(self._codes).tolist()
        self._there = [code for code, count in enumerate(counts) if count]
        looked = np.ones(len(rows), np.bool_)
        for code in self._there:
            key, count = self._keys[code], counts[code]
            if self._lines.get(key, 0) < _SURELY or count <= _SOME:
                continue
            own = np.flatnonzero(self._codes == code)
            away = np.ones(count, np.bool_)
            away[:: -(-count // _SOME)] = False
            self._away[code] = own[away]
            looked[own[away]] = False
        self.left_out = bool(self._away)
        return rows[looked] if self.left_out else rows

    def but_barren(self, tally: Tally | None, rows: Any) -> Any:
        """Return some rows of a piece without those of kinds that were looked at and never showed anything."""
        if tally is None or tally.codes is None or tally.lines is not None:
            return rows
        import numpy as np

        told, lines = self._told, self._lines
        may = np.fromiter(
            (key in told or key not in lines for key in tally.keys), np.bool_, len(tally.keys)
        )
        return rows if may.all() else rows[may[tally.codes[rows]]]

    def left(self, found: Iterable[int]) -> Any:
        """Take in on which rows something was found, and return those left out that must be looked at in any case."""
        import numpy as np

        if self._codes is None:
            return ()
        told: set[int] = set()
        if found:
            told.update(
                self._codes[np.searchsorted(self._rows, np.fromiter(found, np.int64))].tolist()
            )
        for code in self._there:
            key = self._keys[code]
            if code in told:
                self._told.add(key)
                self._lines.pop(key, None)
            elif key not in self._told and (key in self._lines or len(self._lines) < _KINDS):
                self._lines[key] += self._counts[code]
        again = [self._away[code] for code in told if code in self._away]
        return self._rows[np.sort(np.concatenate(again))] if again else ()
