"""The last lines on which each signature was found, cut out of their pieces only when they are still the last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rerail.log_parsers.kept_lines import KeptLines
from rerail.log_parsers.piece import Piece

_HELD = 4  # pieces that may be held on to: as many as `nearby_lines.Above` holds anyhow


class LastHits:
    """Remembers the last lines of each signature of one file.

    A signature that is found on every other line would have its lines cut out of every piece, for nothing
    but the last of them. So rows are noted, and cut out when their piece is to be let go.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lines: dict[int, list[tuple[int, bytes]]] = {}
        self._noted: dict[int, list[tuple[Piece, int, list[int]]]] = {}
        self._pieces = 0

    def add(self, piece: Piece, first: int, rows: Mapping[int, Sequence[int]]) -> None:
        """Take the rows of a piece, whose first line has the number `first`, by signature, in any order."""
        if self._pieces == _HELD:
            self._cut_out()
        self._pieces += 1
        for index, some in rows.items():
            last = sorted(set(some))[-self._most :]
            noted = self._noted.get(index)
            if noted is None or len(last) == self._most:
                self._noted[index] = [(piece, first, last)]
            else:
                noted.append((piece, first, last))

    def keep(self, kept: KeptLines) -> Iterator[tuple[int, list[int]]]:
        """Keep the last lines of each signature, and yield it with their numbers."""
        for index in {**self._lines, **self._noted}:
            numbers: list[int] = []
            for piece, first, rows in reversed(self._noted.get(index, ())):
                some = rows[len(numbers) - self._most :] if len(numbers) < self._most else []
                kept.keep_rows(piece, first, some, always=True)
                numbers += map(first.__add__, some)
            older = self._lines.get(index, [])
            left = min(self._most - len(numbers), len(older))
            kept.keep_lines(older[len(older) - left :], always=True)
            yield index, numbers + [number for number, _ in older[len(older) - left :]]

    def _cut_out(self) -> None:
        for index, noted in self._noted.items():
            known = self._lines.setdefault(index, [])
            left, found = self._most, []
            for piece, first, rows in reversed(noted):
                wanted = rows[-left:] if left else []
                found.append([(first + row, piece.line(row)) for row in wanted])
                left -= len(wanted)
            known += (pair for some in reversed(found) for pair in some)
            del known[: -self._most]
        self._noted.clear()
        self._pieces = 0
