"""The loops over every line of a large log: compiled where a compiler was at hand, else with numpy and pyarrow.

Both give the same. `_line_tables.c` is one pass where the other way takes several; where neither it nor
pyarrow is installed, logs are read with the standard library alone.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from rerail.log_parsers.text import ZERO

if TYPE_CHECKING:
    from rerail.log_parsers import _line_tables as compiled_loops
    from rerail.log_parsers.piece import Piece
else:
    try:
        from rerail.log_parsers import _line_tables as compiled_loops
    except ImportError:
        compiled_loops = None


def compiled() -> Any:
    """Return the compiled loops, None where they were not built."""
    return compiled_loops


def new_table() -> Any:
    """Return an empty table of the compiled loops, None where they were not built."""
    return None if compiled_loops is None else compiled_loops.Table(_keys())


@lru_cache(maxsize=1)
def _keys() -> bytes:
    return os.urandom(32)


def new_facts() -> Any:
    """Return an empty table of facts by key (`facts.FactCounter`), None where the loops were not built."""
    return None if compiled_loops is None else compiled_loops.Facts()


class LineCodes:
    """Numbers lines in the order in which they first appear, by their text or by it with all digits zeroed."""

    def __init__(self, *, zero: bool) -> None:
        self._zero = zero
        self._table = new_table()
        self._codes: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._codes if self._table is None else self._table)

    def of(self, piece: Piece, rows: Any) -> tuple[Any, Any]:
        """Return the codes of some lines of a piece, and the places among them of those that are new.

        Args:
            piece: whole lines.
            rows: which, a numpy array of 64-bit integers.
        """
        import numpy as np

        if self._table is not None:
            codes, new = self._table.lines(piece.raw, np.asarray(piece.ends), rows, self._zero)
            return np.frombuffer(codes, np.int32), np.frombuffer(new, np.int64)
        import pyarrow as pa

        lines = _lines_of(piece).take(pa.array(rows))
        if self._zero:
            _, offsets, values = lines.buffers()
            zeroed = pa.py_buffer(values.to_pybytes().translate(ZERO))
            lines = pa.Array.from_buffers(pa.binary(), len(lines), [None, offsets, zeroed])
        encoded = lines.dictionary_encode()
        codes, texts = encoded.indices.to_numpy(), encoded.dictionary.to_pylist()
        known = len(self._codes)
        numbers = [self._codes.setdefault(text, len(self._codes)) for text in texts]
        first = np.empty(len(texts), np.int64)
        first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
        new = first[[place for place, number in enumerate(numbers) if number >= known]]
        return np.asarray(numbers, np.int32)[codes], new


def taken(piece: Piece, rows: Any) -> tuple[bytes, Any]:
    """Return some lines of a piece as one text, and the offsets of its newlines.

    Args:
        piece: whole lines.
        rows: which, a numpy array of 64-bit integers.
    """
    import numpy as np

    ends = np.asarray(piece.ends)
    stops = np.cumsum(ends[rows] - np.where(rows > 0, ends[rows - 1], -1)) - 1
    if compiled_loops is not None:
        return compiled_loops.taken(piece.raw, ends, rows), stops
    import pyarrow as pa

    return _lines_of(piece).take(pa.array(rows)).buffers()[2].to_pybytes(), stops


def begun(piece: Piece, label: bytes, first: int, last: int) -> list[int]:
    """Return the rows from `first` up to `last` that begin with a label; only of the compiled loops."""
    import numpy as np

    found = compiled_loops.begun(piece.raw, np.asarray(piece.ends), label, first, last)
    rows: list[int] = np.frombuffer(found, np.int64).tolist()
    return rows


def _lines_of(piece: Piece) -> Any:
    """Return the lines of a piece as an Arrow array over its bytes, to take some of them out."""
    import numpy as np
    import pyarrow as pa

    ends = np.asarray(piece.ends)
    starts = np.empty(len(ends) + 1, np.int32)
    starts[0] = 0
    np.add(ends, 1, out=starts[1:], casting="unsafe")
    return pa.Array.from_buffers(
        pa.binary(), len(ends), [None, pa.py_buffer(starts), pa.py_buffer(piece.raw)]
    )


def grouped(streams: Any, rows: Any) -> tuple[Any, Any, Any, Any]:
    """Return streams, how many of the lines each has, and the first and the last row of each.

    Args:
        streams: of each line of a piece, a numpy array of 32-bit integers.
        rows: which lines, a numpy array of 64-bit integers in order; None for all.
    """
    import numpy as np

    if compiled_loops is not None:
        found = compiled_loops.grouped(streams, b"" if rows is None else rows)
        present, counts, firsts, lasts = (np.frombuffer(column, np.int64) for column in found)
        return present, counts, firsts, lasts
    rows = np.arange(len(streams)) if rows is None else rows
    streams = streams[rows]
    highest = int(streams.max(initial=0)) + 1
    if highest > 8 * len(streams):
        present, places = np.unique(streams, return_inverse=True)
    else:
        present = np.flatnonzero(np.bincount(streams, minlength=highest))
        place_of = np.empty(highest, np.int64)
        place_of[present] = np.arange(len(present))
        places = place_of[streams]
    counts = np.bincount(places, minlength=len(present))
    first, last = np.empty(len(present), np.int64), np.empty(len(present), np.int64)
    last[places] = rows
    first[places[::-1]] = rows[::-1]
    return present.astype(np.int64), counts, first, last
