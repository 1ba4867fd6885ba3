"""What stands around a line of a long file: above it, below it, and at the file's end, in bounded memory."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator

from rerail.late_dataclass import dataclass
from rerail.log_parsers.line_tables import begun, compiled
from rerail.log_parsers.piece import Piece

TAIL_LINES = 300
TAIL_BYTES = 16 << 20
_AT_ONCE = 256  # lines whose beginnings are compared at first; before the next are asked for, twice as many


@dataclass(slots=True)
class Wanted:
    """Lines that a hit near the end of a piece still asks for: of one label, or any."""

    label: bytes | None
    count: int
    within: int


class End:
    """The last pieces that were read, for the last lines; cut into lines when all is read."""

    def __init__(self, most: int = TAIL_LINES) -> None:
        self._pieces: deque[tuple[int, Piece]] = deque()
        self._most = most
        self._lines = 0
        self._bytes = 0

    def add(self, first: int, piece: Piece) -> None:
        """Take the next piece, whose first line has the number `first`."""
        self._pieces.append((first, piece))
        self._lines += len(piece.ends)
        self._bytes += len(piece)
        while len(self._pieces) > 1:
            _, oldest = self._pieces[0]
            if (
                self._lines - len(oldest.ends) <= self._most
                and self._bytes - len(oldest) < TAIL_BYTES
            ):
                return
            self._pieces.popleft()
            self._lines -= len(oldest.ends)
            self._bytes -= len(oldest)

    def rows(self) -> tuple[int, Piece, range] | None:
        """Return a piece that holds the last lines, the number of its first line, and their rows.

        They are up to the most asked for and `TAIL_BYTES`; None where nothing was read.
        """
        if not self._pieces:
            return None
        # Mostly the last piece holds them all; one that ends inside a line goes on in the next.
        needed = lines = 0
        for _, one in reversed(self._pieces):
            needed, lines = needed + 1, lines + len(one.ends)
            if lines > self._most + 1:
                break
        number, piece = self._pieces[-needed]
        if needed > 1:
            piece = Piece(b"".join(one.raw for _, one in list(self._pieces)[-needed:]))
        if len(piece) > TAIL_BYTES:
            # Where pieces end must not decide what is kept.
            cut = piece.raw.find(b"\n", len(piece) - TAIL_BYTES - 1) + 1
            number += piece.raw.count(b"\n", 0, cut)
            piece = Piece(piece.raw[cut:])
        count = piece.rows if len(piece) else 0
        return number, piece, range(max(0, count - self._most), count)


class Above:
    """The last pieces that were read, for what stands above a hit; cut into lines when asked."""

    def __init__(self) -> None:
        self._pieces: deque[tuple[int, Piece]] = deque(maxlen=4)

    def add(self, first: int, piece: Piece) -> None:
        """Take the next piece, whose first line has the number `first`."""
        self._pieces.append((first, piece))

    def upwards(self, before: int, count: int) -> Iterator[tuple[int, bytes]]:
        """Yield (number, line) of up to `count` lines above line `before`, nearest first."""
        for first, piece in reversed(self._pieces):
            if count <= 0 or first >= before:
                continue
            for at in range(piece.rows - 1, -1, -1):
                if count <= 0:
                    return
                yield first + at, piece.line(at)
                count -= 1

    def labelled(self, label: bytes, before: int, count: int) -> Iterator[tuple[int, bytes]]:
        """Yield (number, line) of those of the `count` lines above line `before` that begin with a label."""
        for first, piece in reversed(self._pieces):
            if count <= 0 or first >= before:
                continue
            last = piece.rows - 1
            for at in labelled_above(piece, label, last, count):
                yield first + at, piece.line(at)
            count -= last + 1


def labelled_above(piece: Piece, label: bytes, row: int, most: int) -> Iterator[int]:
    """Yield the rows that begin with a label, from `row` upwards, among so many rows; nearest first."""
    raw, ends = piece.raw, piece.ends
    lowest = max(0, row - most + 1)
    if compiled() is not None and not isinstance(ends, list):
        stop, count = row + 1, _AT_ONCE
        while stop > lowest:
            yield from reversed(begun(piece, label, max(lowest, stop - count), stop))
            stop, count = stop - count, 2 * count
        return
    sought, begin = b"\n" + label, int(ends[lowest - 1]) if lowest else 0
    stop = (int(ends[row - 1]) + 1 if row else 0) + len(label)
    while (at := raw.rfind(sought, begin, stop)) >= 0:
        yield int(bisect_left(ends, at)) + 1
        stop = at + len(label)
    if lowest == 0 and raw.startswith(label):
        yield 0


def labelled_from_top(piece: Piece, label: bytes, most: int) -> Iterator[int]:
    """Yield which of the first rows begin with a label, in order."""
    if most > 0 and piece.raw.startswith(label):
        yield 0
    if most > 1:
        yield from labelled_below(piece, label, 0, most)


def labelled_below(piece: Piece, label: bytes, row: int, most: int) -> Iterator[int]:
    """Yield the rows below `row` that begin with a label, in order; the last is row `row + most - 1`."""
    raw, ends = piece.raw, piece.ends
    sought, count = b"\n" + label, len(ends)
    last = row + most - 1
    if compiled() is not None and not isinstance(ends, list):
        start, step = row + 1, _AT_ONCE
        while start <= last:
            yield from begun(piece, label, start, min(last + 1, start + step))
            start, step = start + step, 2 * step
        return
    stop = int(ends[last - 1]) + len(sought) if last <= count else len(raw)
    at = int(ends[row]) if row < count else len(raw)
    while (at := raw.find(sought, at, stop)) >= 0:
        yield int(bisect_left(ends, at)) + 1
        at += 1
