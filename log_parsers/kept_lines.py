"""The lines of a file that are kept word for word, within the room that the file has."""

from __future__ import annotations

from collections.abc import Sequence

from rerail.log_parsers.candidate_line import LONGEST_KEPT, bounded
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

    def keep_rows(
        self, piece: Piece, first: int, rows: Sequence[int], *, always: bool = False
    ) -> None:
        """Keep many lines of a piece whose first line has the number `first`, given by their rows in order."""
        count = piece.rows
        rows = [row for row in rows if row < count and first + row not in self.lines]
        numbers = map(first.__add__, rows)
        self.keep_lines([*zip(numbers, piece.cut(rows), strict=True)], always=always)

    def keep_lines(self, lines: Sequence[tuple[int, bytes]], *, always: bool = False) -> None:
        """Keep many lines, given with their numbers."""
        new = {number: raw for number, raw in lines if number not in self.lines}
        sizes = list(map(len, new.values()))
        size = sum(sizes)
        if max(sizes, default=0) <= LONGEST_KEPT and (always or self._bytes + size <= self._most):
            self._bytes += size
            self.lines.update(new)
            return
        for number, raw in lines:
            self.keep(number, raw, always=always)
