"""A piece of a log as its readers share it: cut into lines and stripped of escapes once, if ever."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from rerail.lazy_patterns import lazy
from rerail.log_parsers.line_tables import compiled, taken
from rerail.log_parsers.scan import searchable

# Below this, numpy costs more than it saves; where it is not imported yet, importing it does for much longer.
_LARGE, _WORTH_AN_IMPORT = 65_536, 1 << 20

_MANY = 8  # lines that are cut out at once sooner than one by one
_LF, _CR = 10, 13
_FRAME_END = lazy(rb"[\r\n]")


class Piece:
    """Some bytes of a log; rows of its lines count from 0, whatever ends the last one.

    Attributes:
        raw: The bytes as they were read.
    """

    __slots__ = ("_ends", "_frame_ends", "_lines", "_tally", "_text", "_text_ends", "raw")

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self._text: bytes | None = None
        self._ends: Any = None
        self._frame_ends: Any = None
        self._text_ends: Any = None
        self._lines: list[bytes] | None = None
        self._tally: Any = None

    def __len__(self) -> int:
        return len(self.raw)

    @property
    def text(self) -> bytes:
        """The bytes as `scan.searchable` returns them; every line keeps its row."""
        if self._text is None:
            self._text = searchable(self.raw)
        return self._text

    @property
    def ends(self) -> Any:
        """Offsets of the newlines in `raw`: a numpy array of a large piece, a list of a small one."""
        if self._ends is None:
            self._find_ends()
        return self._ends

    @property
    def frame_ends(self) -> Any:
        """Offsets of newlines and carriage returns in `raw`: `ends` itself if there are no returns."""
        if self._frame_ends is None:
            self._find_ends()
        return self._frame_ends

    def ends_known(self, frame_ends: Any, ends: Any) -> None:
        """Take the ends of frames and of lines from who found them on the way."""
        self._frame_ends, self._ends = frame_ends, ends

    def _find_ends(self) -> None:
        if b"\r" not in self.raw:
            self._ends = self._frame_ends = line_ends(self.raw)
            return
        self._frame_ends = ends = ends_of_frames(self.raw)
        if isinstance(ends, list):
            self._ends = [end for end in ends if self.raw[end] == _LF]
        else:
            import numpy as np

            self._ends = ends[np.frombuffer(self.raw, np.uint8)[ends] == _LF]

    @property
    def text_ends(self) -> Any:
        """Offsets of the newlines in `text`."""
        if self._text_ends is None:
            self._text_ends = self.ends if self.text is self.raw else line_ends(self.text)
        return self._text_ends

    def tally(self, first_line: int) -> Any:
        """Return the tally of its skeletons (`tallies.tally_large`), made once."""
        if self._tally is None:
            from rerail.log_parsers.tallies import tally_large

            self._tally = tally_large(self, first_line)
        return self._tally

    @property
    def known_tally(self) -> Any:
        """The tally of its skeletons, None where it was not asked for."""
        return self._tally

    @property
    def rows(self) -> int:
        """How many lines there are, a last one without its newline included."""
        return len(self.ends) + (not self.raw.endswith(b"\n"))

    def with_lines(self, pairs: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int, bytes]]:
        """Add to each (row, number) the line of the row without its newline.

        Few lines are looked at, so they are cut one by one. Rows behind the last are left out.
        """
        if not pairs:
            return
        count, ends, raw = self.rows, self.ends, self.raw
        pairs = [pair for pair in pairs if pair[0] < count]
        if isinstance(ends, list):
            starts = [ends[row - 1] + 1 if row else 0 for row, _ in pairs]
            stops = [ends[row] if row < len(ends) else len(raw) for row, _ in pairs]
        else:
            import numpy as np

            bounds = np.concatenate(([-1], ends, [len(raw)]))
            rows = np.fromiter((row for row, _ in pairs), np.int64, len(pairs))
            starts, stops = (bounds[rows] + 1).tolist(), bounds[rows + 1].tolist()
        for (row, number), start, stop in zip(pairs, starts, stops, strict=True):
            yield row, number, raw[start:stop]

    def cut(self, rows: Sequence[int]) -> list[bytes]:
        """Return the lines of some rows, in order, without their newlines; many are cut out at once."""
        ends = self.ends
        if (
            compiled() is None
            or len(rows) < _MANY
            or isinstance(ends, list)
            or rows[-1] >= len(ends)
        ):
            return [self.line(row) for row in rows]
        import numpy as np

        text, _ = taken(self, np.asarray(rows, np.int64))
        return text.split(b"\n")[:-1]

    def from_row(self, row: int) -> bytes:
        """Return the lines from a row on, the last one ended."""
        raw = self.raw[int(self.ends[row - 1]) + 1 if row else 0 :]
        return raw if raw.endswith(b"\n") else raw + b"\n"

    def line(self, row: int) -> bytes:
        """Return one line without its newline; a few cost less than to cut out all of them."""
        if self._lines is not None:
            return self._lines[row]
        ends, raw = self.ends, self.raw
        start = int(ends[row - 1]) + 1 if row else 0
        return raw[start : int(ends[row]) if row < len(ends) else len(raw)]

    def lines(self) -> list[bytes]:
        """Return all lines without their newlines."""
        if self._lines is None:
            self._lines = self.raw.split(b"\n")[: self.rows]
        return self._lines


def _is_large(data: bytes) -> bool:
    return len(data) > _LARGE and ("numpy" in sys.modules or len(data) > _WORTH_AN_IMPORT)


def line_ends(data: bytes) -> Any:
    """Return the offset of every newline: a numpy array of large data, a list of small."""
    if _is_large(data):
        import numpy as np

        if compiled() is not None:
            return np.frombuffer(compiled().line_ends(data), np.int64)
        return np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == _LF)
    if compiled() is not None:
        known: list[int] = memoryview(compiled().line_ends(data)).cast("q").tolist()
        return known
    found: list[int] = []
    at = data.find(b"\n")
    while at >= 0:
        found.append(at)
        at = data.find(b"\n", at + 1)
    return found


def ends_of_frames(data: bytes) -> Any:
    """Return the offset of every newline and carriage return, as `line_ends` does."""
    if _is_large(data):
        import numpy as np

        letters = np.frombuffer(data, dtype=np.uint8)
        # One look for all four bytes from line feed to carriage return; the other two are rare.
        ends = np.flatnonzero((letters - _LF) <= _CR - _LF)
        kinds = letters[ends]
        wanted = (kinds == _LF) | (kinds == _CR)
        return ends if wanted.all() else ends[wanted]
    return [match.start() for match in _FRAME_END.finditer(data)]


def rows_of(offsets: Sequence[int], ends: Any) -> list[int]:
    """Return the row on which each offset stands, given the `ends` of the lines."""
    if isinstance(ends, list):
        from bisect import bisect_left

        return [bisect_left(ends, offset) for offset in offsets]
    import numpy as np

    rows: list[int] = np.searchsorted(ends, np.fromiter(offsets, np.int64, len(offsets))).tolist()
    return rows
