"""The last of some lines of every stream, word for word, whatever else of the file was left out.

Pieces are held as they are until there are many; then the lines alone remain behind which their stream has no other.
A hundred thousand streams take as many lines, and a piece costs one look at the streams of its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rerail.late_dataclass import dataclass
from rerail.log_parsers.line_tables import taken
from rerail.log_parsers.piece import Piece

_HELD = 16 << 20  # bytes of pieces that are held as they are
_LONGEST, _SHORTEST = 4_000, 400  # bytes of a line
_ALL = 32 << 20  # bytes of long lines of all streams


@dataclass(slots=True)
class _Held:
    """Rows of a piece with their numbers and streams, as numpy arrays."""

    piece: Piece
    rows: Any
    numbers: Any
    streams: Any


class LastLines:
    """Collects such lines while a file is read."""

    def __init__(self, held: int = _HELD) -> None:
        """Hold pieces of so many bytes at most before their other lines are dropped."""
        self._most = held
        self._held: list[_Held] = []
        self._bytes = 0
        self._last: Any = None  # by stream, the number of its last line; numpy alone
        self._cut: dict[
            int, tuple[int, bytes]
        ] = {}  # lines that were cut out one by one, by stream

    def add(self, piece: Piece, first_line: int, rows: Any, streams: Any) -> None:
        """Take some rows of the next piece, in order.

        Args:
            piece: whole lines.
            first_line: the number of its first line.
            rows: which, as a list or a numpy array.
            streams: those of all its lines.
        """
        if not len(rows):
            return
        if isinstance(streams, list) or isinstance(piece.ends, list):
            self._add_cut(piece, first_line, [int(row) for row in rows], streams)
            return
        import numpy as np

        rows = np.asarray(rows, np.int64)
        ends = piece.ends
        rows = rows[rows < len(ends)]
        own = np.asarray(streams)[rows]
        long = ends[rows] - np.where(rows > 0, ends[rows - 1], -1) > _longest(
            int(own.max(initial=0))
        )
        if long.any():
            self._add_cut(piece, first_line, _last_of(rows[long], own[long]), streams)
            rows, own = rows[~long], own[~long]
        if not len(rows):
            return
        wide = int(own.max()) + 1
        if self._last is None or len(self._last) < wide:
            wider = np.zeros(2 * wide, np.int64)
            if self._last is not None:
                wider[: len(self._last)] = self._last
            self._last = wider
        numbers = rows + first_line
        self._last[own] = numbers  # of several rows of a stream the last one is written last
        self._held.append(_Held(piece, rows, numbers, own))
        self._bytes += len(piece)
        if self._bytes > self._most:
            self._drop_others()

    def _add_cut(self, piece: Piece, first_line: int, rows: Sequence[int], streams: Any) -> None:
        longest = _longest(len(self._cut))
        latest = {int(streams[row]): row for row in rows}
        for stream, row in latest.items():
            self._cut[stream] = first_line + row, piece.line(row)[:longest]

    def _drop_others(self) -> None:
        import numpy as np

        texts, numbers, streams = [], [], []
        for held in self._held:
            last = self._last[held.streams] == held.numbers
            if last.any():
                texts.append(taken(held.piece, held.rows[last])[0])
                numbers.append(held.numbers[last])
                streams.append(held.streams[last])
        self._held, self._bytes = [], 0
        if texts:
            piece, of_all = Piece(b"".join(texts)), np.concatenate(numbers)
            rows = np.arange(len(of_all), dtype=np.int64)
            self._held = [_Held(piece, rows, of_all, np.concatenate(streams))]

    def found(self) -> list[tuple[int, int, bytes]]:
        """Return (number, stream, line) of the last line of each stream so far, in order of lines."""
        found = dict(self._cut)
        if self._held:
            self._drop_others()
        for held in self._held:
            lines = held.piece.raw.split(b"\n")
            for number, stream, line in zip(
                held.numbers.tolist(), held.streams.tolist(), lines, strict=False
            ):
                if stream not in found or found[stream][0] < number:
                    found[stream] = number, line
        return sorted((number, stream, line) for stream, (number, line) in found.items())


def _longest(streams: int) -> int:
    """Return how many bytes of a line are held where there are so many streams."""
    return max(_SHORTEST, min(_LONGEST, _ALL // (streams + 1)))


def _last_of(rows: Any, streams: Any) -> list[int]:
    """Return the last row of each stream, in order."""
    return sorted({s: row for s, row in zip(streams.tolist(), rows.tolist(), strict=True)}.values())
