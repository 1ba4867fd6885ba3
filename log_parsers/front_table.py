"""What the compiled loops know of the fronts of lines: where labels end, and which bytes of them name a writer."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any

from rerail.log_parsers.line_tables import new_table
from rerail.log_parsers.piece import Piece

MOST_STREAMS = 1 << 20
EXAMPLE = 64
"""Bytes behind the labels of an example: what follows decides where labels end."""

Cutter = Callable[[int], tuple[int, int]]
_TOGETHER = 1_024  # lines of fronts that are cut one by one
_NOT_SO = -1  # in the place of an end: such fronts are cut one by one


class Writers:
    """Who writes the lines of one file, numbered in order of appearance; the first is nobody."""

    def __init__(self) -> None:
        self.examples: list[bytes] = [b""]
        """The front of the first line of each stream."""
        self.ends = array("i", [0])
        """Where its labels end."""
        self.table = new_table()
        self._ids: dict[bytes, int] = {b"": 0}
        if self.table is not None:
            self.table.put(b"")

    def number(self, key: bytes, line: bytes, end: int) -> int:
        """Return the stream of a writer, a new one where there is room; `end` is where the labels of the line do."""
        known = len(self.examples)
        if self.table is not None:
            found: int = self.table.put(key, MOST_STREAMS)
        else:
            found = self._ids.get(key, known if known < MOST_STREAMS else -1)
            if found == known:
                self._ids[key] = known
        if found == known:
            self.examples.append(line[: end + EXAMPLE])
            self.ends.append(end)
        return max(found, 0)

    def add(self, key: bytes) -> None:
        """Take a writer that the table has numbered last, by all that is known of it."""
        if len(self.examples) < MOST_STREAMS:
            self.examples.append(key)
            self.ends.append(len(key))


class FrontTable:
    """Shapes of fronts; only where the compiled loops were built."""

    def __init__(self) -> None:
        self._shapes = new_table()
        self._cuts, self._parts = array("i"), array("i")

    def read(
        self, piece: Piece, kinds: Any, widths: Any, windows: Any, writers: Writers, cut: Cutter
    ) -> tuple[Any, Any]:
        """Return the stream of each line, and where the window around its time begins.

        Args:
            piece: whole lines.
            kinds: the kind of each line, 32-bit integers.
            widths: by kind, how many bytes of a front tell its shape.
            windows: by kind, where the window begins of lines that have no label.
            writers: those of the file.
            cut: returns both for a row whose front is not known yet, and calls `learn`.
        """
        import numpy as np

        streams, begins = np.empty(len(kinds), np.int32), np.empty(len(kinds), np.int32)
        row = 0
        while row < len(kinds):
            left, row, ends = self._shapes.streams(
                piece.raw, piece.ends, kinds, widths, windows, self._cuts, self._parts, writers.table,
                writers.examples, streams, begins, row, _TOGETHER, MOST_STREAMS, EXAMPLE,
            )  # fmt: skip
            writers.ends.frombytes(ends)
            for other in np.frombuffer(left, np.int64).tolist():
                streams[other], begins[other] = cut(other)
        return streams, begins

    def learn(
        self, shape: bytes, end: int, gaps: Sequence[tuple[int, int]], window: int, *, slow: bool
    ) -> None:
        """Remember where labels end in fronts of a shape, and which bytes of them tell nothing of who writes."""
        if 4 * self._shapes.put(shape) < len(self._cuts):
            return
        first, at = len(self._parts) // 2, 0
        for start, stop in gaps:
            if at < start:
                self._parts.extend((at, start))
            at = stop
        if at < end:
            self._parts.extend((at, end))
        self._cuts.extend((_NOT_SO if slow else end, window, first, len(self._parts) // 2))
