"""The lines of a file that are kept word for word, within the room that the file has."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from rerail.log_parsers.candidate_line import LONGEST_KEPT, bounded
from rerail.log_parsers.line_tables import compiled
from rerail.log_parsers.piece import Piece


class KeptLines:
    """Keeps lines by number until they take `most` bytes, and those that are kept `always` beyond that."""

    def __init__(self, lines: dict[int, bytes], most: int, size: int = 0) -> None:
        self.lines = lines
        self._most = most
        self._bytes = size

    def copy(self, lines: dict[int, bytes]) -> KeptLines:
        """Return the same over a copy of the lines."""
        return KeptLines(lines, self._most, self._bytes)

    def keep(self, number: int, raw: bytes, *, always: bool = False) -> None:
        """Keep one line."""
        if number in self.lines or (not always and self._bytes > self._most):
            return
        raw = bounded(raw)
        self._bytes += len(raw)
        self.lines[number] = raw

    def keep_rows(self, piece: Piece, first: int, rows: Any, *, always: bool = False) -> None:
        """Keep many lines of a piece whose first line has the number `first`, given by their rows in order."""
        loops, ends = compiled(), piece.ends
        if loops is not None and not isinstance(ends, list):
            import numpy as np

            wanted = np.arange(len(rows)) + rows.start if isinstance(rows, range) else rows
            wanted = np.asarray(wanted, np.int64)
            room = sys.maxsize if always else self._most - self._bytes
            self._bytes += loops.kept(
                self.lines, piece.raw, ends, wanted, first, room, LONGEST_KEPT
            )
            return
        count = piece.rows
        for row in rows:
            if row < count:
                self.keep(first + int(row), piece.line(int(row)), always=always)

    def keep_lines(self, lines: Iterable[tuple[int, bytes]], *, always: bool = False) -> None:
        """Keep many lines, given with their numbers."""
        for number, raw in lines:
            self.keep(number, raw, always=always)
