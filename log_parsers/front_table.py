"""What the compiled loops know of the fronts of one file's lines: where labels end, and whose they are."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from rerail.log_parsers.line_tables import new_table
from rerail.log_parsers.piece import Piece

_NOT_SO = -1  # in the place of an end: such fronts are cut one by one


class FrontTable:
    """Shapes of fronts and names of writers; only where the compiled loops were built."""

    def __init__(self) -> None:
        self._shapes, self._names = new_table(), new_table()
        self._cuts, self._parts, self._ids = array("i"), array("i"), array("i")

    def read(
        self, piece: Piece, kinds: Any, widths: Any, windows: Any
    ) -> tuple[Any, Any, list[int]]:
        """Return the stream of each line, where the window around its time begins, and the rows left out.

        Args:
            piece: whole lines.
            kinds: the kind of each line, 32-bit integers.
            widths: by kind, how many bytes of a front tell its shape.
            windows: by kind, where the window begins of lines that have no label.
        """
        import numpy as np

        streams, begins = np.empty(len(kinds), np.int32), np.empty(len(kinds), np.int32)
        left = self._shapes.streams(
            piece.raw, piece.ends, kinds, widths, windows, self._cuts, self._parts, self._names, self._ids,
            streams, begins,
        )  # fmt: skip
        return streams, begins, np.frombuffer(left, np.int64).tolist()

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
            at = max(at, stop)
        if at < end:
            self._parts.extend((at, end))
        self._cuts.extend((_NOT_SO if slow else end, window, first, len(self._parts) // 2))

    def name(self, key: bytes, stream: int) -> None:
        """Remember which stream the lines of a writer belong to."""
        if self._names.put(key) == len(self._ids):
            self._ids.append(stream)
