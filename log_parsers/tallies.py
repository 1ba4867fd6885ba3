"""Counts the skeletons of one piece of a log: which there are, how often, and on which lines.

A skeleton is a line without digits and lower-case hex letters (see `skeletons`). Three ways lead to the
same tally: the standard library alone, numpy with pyarrow, and numpy with the compiled loops, each of
them several times as fast as the one before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib.util import find_spec
from itertools import accumulate
from typing import Any

from rerail.late_dataclass import dataclass
from rerail.log_parsers.line_tables import compiled, new_table
from rerail.log_parsers.piece import Piece

DELETED = b"0123456789abcdef\x00"
"""The bytes that a skeleton leaves out."""

_LF, _CR = 10, 13
_CR_TO_LF = bytes.maketrans(b"\r", b"\n")
_NOT_ENDS = bytes(i for i in range(256) if i not in b"\r\n")
_LF_TO_ONE = bytes.maketrans(b"\r\n", b"\x00\x01")

# Arrow is quicker per byte, but importing it costs as much as reading some 12 MB without it. The compiled
# loops need numpy alone, and pay for the short last piece of a file as well.
_LEAST, _LEAST_COMPILED = 1 << 17, 1 << 14
_ARROW_AFTER = 12 << 20
_COMPILED_AFTER = 2 << 20
# Known lines are looked for by their skeletons from here on. Some tenths of a second of patterns are compiled for it,
# what a noisy log costs in as few MB as these without it; a log that is never noisy pays them back later.
_SIEVES_AFTER = 3 << 20
_MOST, _MOST_BYTES = 150_000, 24 << 20  # skeletons that the compiled loops remember


@dataclass(frozen=True, slots=True)
class Tally:
    """The distinct skeletons of one piece, in columns; row i of each belongs to one skeleton.

    Frames of a progress bar (ended by a carriage return) count one by one.

    Attributes:
        frames: How many frames the piece holds.
        keys: The skeletons.
        counts: Frames of each.
        firsts: Line number of the first frame of each.
        lasts: Line number of the last frame of each.
        places: Number of the first frame of each within the piece, from 0.
        raw: Returns the raw bytes of a frame by its number.
        codes: Which skeleton each frame has, a numpy array; None from the plain way.
        lines: On which line of the piece each frame stands, from 0, a numpy array; None where
            every frame is a line.
        numbers: Of the compiled loops, what number each skeleton has in their table, a numpy array.
        era: For which these numbers hold.
    """

    frames: int
    keys: Sequence[bytes]
    counts: Sequence[int]
    firsts: Sequence[int]
    lasts: Sequence[int]
    places: Sequence[int]
    raw: Callable[[int], bytes]
    codes: Any = None
    lines: Any = None
    numbers: Any = None
    era: int = -1


def tally_plain(chunk: bytes, first_line: int) -> Tally:
    """Tally whole frames with the standard library alone."""
    frames = chunk.translate(_CR_TO_LF, DELETED).split(b"\n")
    frames.pop()
    total = len(frames)
    last = dict(zip(frames, range(total), strict=True))
    first = dict(zip(reversed(frames), range(total - 1, -1, -1), strict=True))
    counts = Counter(frames)
    keys = list(counts)
    places = [first[key] for key in keys]
    raws: list[bytes] = []

    def raw(frame: int) -> bytes:
        if not raws:
            raws.extend(chunk.translate(_CR_TO_LF).split(b"\n"))
        return raws[frame]

    if b"\r" in chunk:
        steps = chunk.translate(_LF_TO_ONE, _NOT_ENDS)
        numbers: Sequence[int] = list(accumulate(steps[:-1], initial=first_line))
    else:
        numbers = range(first_line, first_line + total)
    return Tally(
        total,
        keys,
        [counts[key] for key in keys],
        [numbers[place] for place in places],
        [numbers[last[key]] for key in keys],
        places,
        raw,
    )


def tally_large(piece: Piece, first_line: int) -> Tally:
    """Tally whole frames in the quickest way; `vectors_at_hand` says whether there is one."""
    return (_tally_arrow if compiled() is None else _tally_compiled)(piece, first_line)


def _tally_compiled(piece: Piece, first_line: int) -> Tally:
    import numpy as np

    global _skeletons
    if _skeletons is None:
        _skeletons = new_table()
    chunk = piece.raw
    returns = b"\r" in chunk
    *columns, keys, era = _skeletons.tally(chunk, returns, _MOST, _MOST_BYTES)
    ends, first, last, counts = (np.frombuffer(columns[at], np.int64) for at in (0, 2, 3, 4))
    codes, numbers = (np.frombuffer(columns[at], np.int32) for at in (1, 5))
    lines, ends_of_lines = None, ends
    if returns:
        turned = np.frombuffer(chunk, np.uint8)[ends] == _CR
        lines, ends_of_lines = _lines_of_frames(turned), ends[~turned]
    piece.ends_known(ends, ends_of_lines)
    found = _tally(piece, first_line, keys, (codes, first, last, counts), lines)
    return replace(found, numbers=numbers, era=era)


_skeletons: Any = None


def _lines_of_frames(returns: Any) -> Any:
    """Return on which line, from 0, each frame stands, given which of them end with a carriage return."""
    import numpy as np

    steps = (~returns).astype(np.int64)
    return np.cumsum(steps) - steps


def _tally(
    piece: Piece, first_line: int, keys: Sequence[bytes], columns: tuple[Any, ...], lines: Any
) -> Tally:
    codes, first, last, counts = columns
    chunk, ends = piece.raw, piece.frame_ends

    def raw(frame: int) -> bytes:
        return chunk[ends[frame - 1] + 1 if frame else 0 : ends[frame]]

    return Tally(
        len(codes),
        keys,
        counts.tolist(),
        ((first if lines is None else lines[first]) + first_line).tolist(),
        ((last if lines is None else lines[last]) + first_line).tolist(),
        first.tolist(),
        raw,
        codes,
        lines,
    )


def _tally_arrow(piece: Piece, first_line: int) -> Tally:
    import numpy as np
    import pyarrow as pa

    chunk, ends_of_raw = piece.raw, piece.frame_ends
    # A tenth quicker than the method of bytes.
    skeletons = bytearray(chunk).translate(_CR_TO_LF, DELETED)
    letters = np.frombuffer(skeletons, np.uint8)
    ends = np.flatnonzero(letters == _LF)
    returns = None
    if ends_of_raw is not piece.ends:
        returns = np.frombuffer(chunk, np.uint8)[ends_of_raw] == _CR
    total = len(ends)
    offsets = np.empty(total + 1, np.int32)
    offsets[0] = 0
    np.add(ends, 1, out=offsets[1:], casting="unsafe")  # each value ends with its line feed
    values = pa.Array.from_buffers(
        pa.binary(), total, [None, pa.py_buffer(offsets), pa.py_buffer(letters)]
    )
    codes = values.dictionary_encode().indices.to_numpy()
    # Codes are given in order of appearance: a code above all before it is a first occurrence.
    highest = np.maximum.accumulate(codes)
    new = np.ones(total, np.bool_)
    np.not_equal(highest[1:], highest[:-1], out=new[1:])
    first = np.flatnonzero(new)
    counts = np.bincount(codes, minlength=len(first))
    last = np.empty(len(first), np.int64)
    last[codes] = np.arange(total)
    starts, stops = offsets[first].tolist(), ends[first].tolist()
    keys = [letters[a:b].tobytes() for a, b in zip(starts, stops, strict=True)]
    lines = None if returns is None else _lines_of_frames(returns)
    return _tally(piece, first_line, keys, (codes, first, last, counts), lines)


_seen_bytes = 0


def vectors_pay(size: int) -> bool:
    """Return whether what a piece is read with in bulk is worth its import, by what the process has read."""
    global _seen_bytes
    _seen_bytes += size
    least, after = (
        (_LEAST, _ARROW_AFTER) if compiled() is None else (_LEAST_COMPILED, _COMPILED_AFTER)
    )
    return size >= least and _seen_bytes > after and vectors_at_hand()


def sieves_pay() -> bool:
    """Return whether the process has read so much that patterns for skeletons are worth compiling."""
    return _seen_bytes > _SIEVES_AFTER


@lru_cache(maxsize=1)
def vectors_at_hand() -> bool:
    """Return whether numpy and the compiled loops or pyarrow are installed."""
    names = ("numpy",) if compiled() is not None else ("numpy", "pyarrow")
    return all(find_spec(name) is not None for name in names)
