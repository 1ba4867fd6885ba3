"""Lines in which patterns were looked for and nothing was found, known by their text with every digit zeroed.

What a pattern that cannot tell one digit from another does not find in a line, it does not find in any line that
differs from it in digits alone. Programs print the same lines again and again, on all ranks.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any

from rerail.log_parsers.line_tables import LineCodes
from rerail.log_parsers.piece import Piece

_MOST = 50_000  # lines


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
