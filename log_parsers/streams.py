"""Which stream each line of a file belongs to: one writer, by what stands in front of its lines.

To read the labels of every line takes ten microseconds a line. But lines whose fronts differ in nothing
but digits are labelled alike, so `prefixes.parse_line` is asked once for each shape of a front; every
other line is cut where that one was. What is cut out, without its time, names the stream. Two ways
lead to the same streams: line by line, and with numpy and pyarrow for a whole piece at once.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from rerail.domain.evidence import LogLine
from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy
from rerail.log_parsers.by_skeleton import BySkeleton
from rerail.log_parsers.front_table import MOST_STREAMS, FrontTable, Writers
from rerail.log_parsers.json_records import (
    behind_fronts,
    fronts_of_values,
    message_in,
    writer_spans,
)
from rerail.log_parsers.line_tables import compiled
from rerail.log_parsers.line_tails import TailedWriters
from rerail.log_parsers.piece import Piece
from rerail.log_parsers.prefixes import Origin, parse_line
from rerail.log_parsers.tallies import DELETED, Tally
from rerail.log_parsers.text import ZERO, clean
from rerail.log_parsers.timestamps import WALL, Stamp, find_stamp

NOBODY = 0
"""The stream of the lines that carry no label: the file's own."""

WINDOW = 48
"""Bytes around the time stamp of a line that are kept to read it later."""

_KIND = 96  # bytes of a line whose skeleton tells whether it has a label
_MORE_DIGITS = 12
_WIDEST = 160
_PARSED = 400
_RECORD = 4_000  # bytes of a record in which its fields are looked for
_SURELY = 1  # byte in front of a record; with the digits that may be more it is known by these
_DIGITS = lazy(r"\d+")
_SHAPES, _ORIGINS = 20_000, 16
_BEFORE_STAMP = 4


@dataclass(frozen=True, slots=True)
class _Cut:
    """Where labels end, which parts of them do not tell who writes, and where to look for the time.

    `slow` fronts hold escape codes, or are of a `record` whose fields stand anywhere; `stamped` lines tell a
    wall-clock time near their beginning.
    """

    end: int = 0
    gaps: tuple[tuple[int, int], ...] = ()
    window: int = 0
    slow: bool = False
    stamped: bool = False
    record: bool = False


class _Fronts:
    """What is known of the fronts of lines, for all files of one origin that a thread reads."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.shapes: dict[bytes, _Cut] = {}
        self.kinds: dict[bytes, tuple[int, int, bool]] = {}
        self.widths: dict[bytes, int] = {}
        self.windows: dict[bytes, int] = {}
        self.stamped: set[bytes] = set()
        self.values: tuple[bytes, ...] = ()
        """What stands in front of the values of fields in records."""
        self.recorded: set[bytes] = set()
        self.by_skeleton = BySkeleton(4)
        self.table = None if compiled() is None else FrontTable()

    def keep(self, shape: bytes, cut: _Cut) -> _Cut:
        """Remember how fronts of a shape are cut."""
        if len(self.shapes) >= _SHAPES:
            self.shapes.clear()
            self.table = None if self.table is None else FrontTable()
        self.shapes[shape] = cut
        return cut


_of_thread = threading.local()


def _only_own(origin: Origin) -> Origin:
    return Origin(
        node=origin.node, place=origin.place, hosts=origin.hosts, induced=origin.induced, records=origin.records
    )  # fmt: skip


def _fronts_of(origin: Origin) -> _Fronts:
    # The rank of a file is what its labels do not tell; which of their numbers name a writer is the same in all.
    # What was learned of labels and records from the beginning of a file is of the file alone.
    own = origin.node, origin.place, origin.hosts, origin.induced, origin.records
    held: dict[Any, _Fronts] = _of_thread.__dict__.setdefault("fronts", {})
    found = held.pop(own, None)
    if found is None or (found.table is None) is not (compiled() is None):
        found = _Fronts(_only_own(origin))
    while len(held) >= _ORIGINS:
        del held[next(iter(held))]
    held[own] = found
    return found


class Streams:
    """The streams of one file; a stream is known by its number, in order of appearance.

    Attributes:
        stamped: The last row of the piece asked for last that tells a wall-clock time, -1 where none does.
    """

    def __init__(self, origin: Origin) -> None:
        self._of_fronts = Writers()
        self._tails = None if origin.tail is None else TailedWriters(origin.tail, self._of_fronts)
        self.writers = self._of_fronts if self._tails is None else self._tails.writers
        self.stamped = -1
        self.tail = origin.tail
        self.by_records = origin.records is not None
        self._fronts = _fronts_of(origin)
        self._masked: dict[bytes, int] = {}

    def of_lines(self, lines: Sequence[bytes]) -> tuple[list[int], list[int]]:
        """Return the stream of each line, and where the window around its time begins."""
        streams, windows = [], []
        self.stamped = -1
        for row, line in enumerate(lines):
            stream, window, stamped = self._of(line)
            streams.append(stream)
            windows.append(window)
            if stamped:
                self.stamped = row
        if self._tails is not None:
            streams = self._tails.of_lines(lines, streams)
        return streams, windows

    def of_piece(self, piece: Piece, tally: Tally) -> tuple[Any, Any]:
        """Return the same as `of_lines` in numpy arrays, for a piece of whole lines."""
        streams, windows = self._fronts_of_piece(piece, tally)
        if self._tails is not None:
            streams = self._tails.of_piece(piece, streams)
        return streams, windows

    def _fronts_of_piece(self, piece: Piece, tally: Tally) -> tuple[Any, Any]:
        """Return the same by what stands in front of lines."""
        import numpy as np

        skeletons = codes_of_lines(tally)
        count = len(skeletons)
        streams, windows = np.zeros(count, np.int32), np.zeros(count, np.int32)

        def learn(at: int) -> tuple[int, int, int, int]:
            key, fronts = tally.keys[at], self._fronts
            width = self._width(key, tally, at)
            return width, fronts.windows.get(key, 0), key in fronts.stamped, key in fronts.recorded

        widths, windows, stamped, recorded = np.ascontiguousarray(
            self._fronts.by_skeleton.of(tally, learn).T
        )
        self.stamped = _last(stamped != 0, skeletons)
        if self._fronts.table is not None:
            return self._by_table(piece, skeletons, widths, windows, recorded != 0)
        windows = windows[skeletons]
        widest = int(widths.max(initial=0))
        if not widest:
            return streams, windows
        rows = np.flatnonzero(widths[skeletons] > 0)
        ends = np.asarray(piece.ends)
        starts = np.zeros(count, np.int64)
        np.add(ends[: count - 1], 1, out=starts[1:])
        width = min(_WIDEST, -(-widest // 8) * 8)
        fronts = _fronts(piece.raw, starts[rows], width)
        shapes = np.frombuffer(fronts.tobytes().translate(ZERO), np.uint8).reshape(-1, width)
        # What stands behind the labels of a line is a shape of its own on every line.
        shapes = shapes * (np.arange(width) < widths[skeletons[rows], None])
        codes, first = _encoded(shapes)
        cuts = [self._cut(shapes[at].tobytes(), piece, int(rows[at])) for at in first.tolist()]
        masks = np.zeros((len(cuts), width), np.uint8)
        slow = []
        for at, cut in enumerate(cuts):
            masks[at, : cut.end] = 255
            for start, stop in cut.gaps:
                masks[at, start:stop] = 0
            if cut.slow or cut.end > width:
                masks[at] = 0
                slow.append(at)
        named = fronts.view(np.uint8).reshape(len(rows), width) & masks[codes]
        codes_of_names, first = _encoded(named)
        ids = np.empty(len(first), np.int32)
        for at, place in enumerate(first.tolist()):
            name = named[place].tobytes()
            found = self._masked.get(name)
            if found is None:
                key = name.replace(b"\0", b"")
                line, end = _line(piece, int(rows[place])), cuts[int(codes[place])].end
                found = self._masked[name] = self._of_fronts.number(key, line, end)
            ids[at] = found
        streams[rows] = ids[codes_of_names]
        windows[rows] = np.fromiter((cut.window for cut in cuts), np.int32, len(cuts))[codes]
        for row in rows[np.isin(codes, slow)].tolist() if slow else ():
            streams[row], windows[row], _ = self._of(_line(piece, row, _RECORD))
        return streams, windows

    def _by_table(
        self, piece: Piece, skeletons: Any, widths: Any, windows: Any, recorded: Any
    ) -> tuple[Any, Any]:
        """Return the streams and windows of lines by the compiled loops, given what is known of each skeleton."""
        import numpy as np

        table = self._fronts.table
        assert table is not None
        longest = _RECORD if self._fronts.origin.records is not None else _PARSED

        def ask(row: int) -> tuple[int, int]:
            return self._of_front(_line(piece, row, longest), int(widths[skeletons[row]]))

        cut = self._cut_records(piece, recorded[skeletons])
        if cut is None:
            return table.read(piece, skeletons, widths, windows, self._of_fronts, ask)
        rows, found = cut
        widths = np.where(recorded, 0, widths)
        streams, windows = table.read(piece, skeletons, widths, windows, self._of_fronts, ask)
        streams[rows] = found
        for row in rows[found == NOBODY].tolist():
            streams[row], windows[row], _ = self._of(_line(piece, row, longest))
        return streams, windows

    def _cut_records(self, piece: Piece, records: Any) -> tuple[Any, Any] | None:
        """Return which rows are of records that tell their writers in one way, and their streams; NOBODY for others."""
        import numpy as np

        loops, rows = compiled(), np.flatnonzero(records)
        if not self._fronts.values or not len(rows) or not hasattr(loops, "record_fields"):
            return None
        text, ends = loops.record_fields(piece.raw, piece.ends, rows, self._fronts.values)
        every = np.arange(len(rows), dtype=np.int64)
        codes, new = self._of_fronts.table.lines(text, ends, every, False)
        streams = np.frombuffer(codes, np.int32)
        lines = Piece(text)
        for at in np.frombuffer(new, np.int64).tolist():
            self._of_fronts.add(lines.line(at))
        return rows, np.where(streams < MOST_STREAMS, streams, NOBODY)

    def _width(self, key: bytes, tally: Tally, at: int) -> int:
        """Return how many bytes of the fronts of such lines must be looked at; 0 where none has a label."""
        widths, windows = self._fronts.widths, self._fronts.windows
        width = widths.get(key)
        if width is None:
            cut = self._learn(tally.raw(tally.places[at]))
            # Ranks further on have more digits, and what follows decides whether a label goes on.
            width = cut.end + _MORE_DIGITS if cut.end else 0
            if len(widths) >= _SHAPES:
                widths.clear()
                windows.clear()
                self._fronts.stamped.clear()
                self._fronts.recorded.clear()
            widths[key] = width
            if cut.record:
                self._fronts.recorded.add(key)
            if cut.stamped:
                self._fronts.stamped.add(key)
            windows[key] = 0 if width and not cut.record else cut.window
        return width

    def _cut(self, shape: bytes, piece: Piece, row: int) -> _Cut:
        cut = self._fronts.shapes.get(shape)
        if cut is None:
            cut = self._fronts.keep(shape, self._learn(_line(piece, row)))
        return cut

    def _of(self, line: bytes) -> tuple[int, int, bool]:
        """Return the stream of a line, its window, and whether it tells a time."""
        # Pointers and hashes in a message would make a shape of their own of every line.
        kind = line[:_KIND].translate(None, DELETED)
        kinds = self._fronts.kinds
        known = kinds.get(kind)
        if known is None:
            cut = self._learn(line)
            known = cut.end + _MORE_DIGITS if cut.end else 0, cut.window, cut.stamped
            if len(kinds) >= _SHAPES:
                kinds.clear()
            kinds[kind] = known
        width, window, stamped = known
        return (*self._of_front(line, width), stamped) if width else (NOBODY, window, stamped)

    def _of_front(self, line: bytes, width: int) -> tuple[int, int]:
        """Return the stream of a line, so many bytes of which tell the shape of its front, and its window."""
        shape = line[:width].translate(ZERO)
        fronts = self._fronts
        cut_there = fronts.shapes.get(shape)
        cut = fronts.keep(shape, self._learn(line)) if cut_there is None else cut_there
        if fronts.table is not None:
            fronts.table.learn(shape, cut.end, cut.gaps, cut.window, slow=cut.slow)
        if cut.record:
            return self._of_record(line), cut.window
        if cut.slow:
            # One byte a character, so that what is cut by characters is cut by bytes.
            plain = clean(line[:_PARSED]).encode("ascii", "replace")
            return (self._of(plain)[0], 0) if plain != line else (NOBODY, 0)
        if not cut.end:
            return NOBODY, cut.window
        return self._id(line, cut), cut.window

    def _id(self, line: bytes, cut: _Cut) -> int:
        key = line[: cut.end]
        for start, stop in reversed(cut.gaps):
            key = key[:start] + key[stop:]
        return self._of_fronts.number(key, line, cut.end)

    def _of_record(self, line: bytes) -> int:
        """Return the stream of a record, of which its writer's fields are kept as an example."""
        records, fronts = self._fronts.origin.records, self._fronts
        if line[:1] == b"{" and (fields := behind_fronts(line, fronts.values)) is not None:
            key = b" ".join((b"{", *fields))
            return self._of_fronts.number(key, key, len(key))
        spans = () if records is None else writer_spans(line, records)
        if not spans or records is None:
            return NOBODY
        fronts.values = fronts.values or fronts_of_values(line, records)
        begins = b"{" if line.lstrip()[:1] == b"{" else line[: line.find(b"=") + 2]
        key = b" ".join((begins, *(line[start:stop].replace(b'="', b"=") for start, stop in spans)))
        return self._of_fronts.number(key, key, len(key))

    def _learn(self, line: bytes) -> _Cut:
        whole, line = line, line[:_PARSED]
        text = clean(line)
        parsed = parse_line("", 1, text, origin=self._fronts.origin, year=1970)
        stamp = find_stamp(text, year=1970)
        window = max(0, stamp.start - _BEFORE_STAMP) if stamp else 0
        stamped = stamp is not None and stamp.clock == WALL and stamp.end <= _KIND
        own = self._fronts.origin
        if own.records is not None and (found := writer_spans(whole[:_RECORD], own.records)):
            label = len(text) - len(parsed.message)
            if found[-1][1] > label:
                return self._of_fields(line, found, window, stamped=stamped)
        if (
            not parsed.label
            and parsed.place is None
            and (parsed.rank, parsed.node) == (own.rank, own.node)
        ):
            return _Cut(window=window, stamped=stamped)
        # Between labels and message a program may change colours, or begin the frame of a bar.
        end = len(text[: len(text) - len(parsed.message)].rstrip())
        if text[:end].encode() != line[:end]:
            return _Cut(end=end, slow=True, stamped=stamped)
        if stamp and text[: stamp.end].encode() != line[: stamp.end]:
            window = 0
        gaps = _without_overlap(sorted(self._gaps(parsed, text[:end], stamp)))
        return _Cut(end, gaps, window, stamped=stamped)

    def _of_fields(
        self, line: bytes, found: Sequence[tuple[int, int]], window: int, *, stamped: bool
    ) -> _Cut:
        """Return how records are cut: what is between their fields tells nothing, where these stand above the message."""
        end = found[-1][1]
        if end > _WIDEST - _MORE_DIGITS or message_in(line[:end]):
            return _Cut(_SURELY, (), window, slow=True, stamped=stamped, record=True)
        stops = [0, *(stop for _, stop in found)]
        gaps = tuple(zip(stops, (start for start, _ in found), strict=False))
        return _Cut(end, gaps, window, stamped=stamped)

    def _gaps(self, parsed: LogLine, front: str, stamp: Stamp | None) -> Iterator[tuple[int, int]]:
        """Yield where a front tells nothing of who writes: its time, and numbers of processes and threads."""
        told = {parsed.rank, parsed.local_rank}
        at = front.find(parsed.node) if parsed.node else -1
        host = range(at, at + len(parsed.node or "")) if at >= 0 else range(0)
        time = range(stamp.start, min(stamp.end, len(front))) if stamp else range(0)
        if time:
            yield time.start, time.stop
        for run in _DIGITS.finditer(front):
            start, stop = run.span()
            if start in time or start in host or parsed.place is not None:
                continue
            if int(run[0]) not in told or not self._tells(parsed, stop - 1):
                yield start, stop

    def _tells(self, parsed: LogLine, at: int) -> bool:
        """Tell whether a line with another digit in this place would be that of another rank.

        A process may have the number of its rank by chance; the next line of the same shape has not.
        """
        text = parsed.text
        other = f"{text[:at]}{(int(text[at]) + 1) % 10}{text[at + 1 :]}"
        read = parse_line("", 1, other, origin=self._fronts.origin, year=1970)
        return (read.rank, read.local_rank) != (parsed.rank, parsed.local_rank)


def _without_overlap(gaps: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return sorted gaps as ones that do not overlap: a number may begin in front of the time that it is glued to."""
    found: list[tuple[int, int]] = []
    for start, stop in gaps:
        begin = max(start, found[-1][1]) if found else start
        if begin < stop:
            found.append((begin, stop))
    return tuple(found)


def codes_of_lines(tally: Tally) -> Any:
    """Return which skeleton each line has; of a line of several frames, its first frame."""
    if tally.lines is None:
        return tally.codes
    import numpy as np

    return tally.codes[np.flatnonzero(np.diff(tally.lines, prepend=-1))]


def _last(wanted: Any, codes: Any) -> int:
    """Return the last row whose code is wanted, -1 where none is."""
    import numpy as np

    if not wanted.any():
        return -1
    for width in (64, len(codes)):  # mostly one of the last lines
        rows = np.flatnonzero(wanted[codes[-width:]])
        if len(rows):
            return int(rows[-1]) + max(0, len(codes) - width)
    return -1


def _line(piece: Piece, row: int, longest: int = _PARSED) -> bytes:
    ends = piece.ends
    start = int(ends[row - 1]) + 1 if row else 0
    return piece.raw[start : min(int(ends[row]), start + longest)]


def _fronts(raw: bytes, starts: Any, width: int) -> Any:
    """Return the first bytes of lines, also over a line's end, as an array of fixed width."""
    import numpy as np

    padded = np.zeros(len(raw) + width, np.uint8)
    padded[: len(raw)] = np.frombuffer(raw, np.uint8)
    views = np.ndarray((len(raw) + 1,), np.dtype(f"V{width}"), padded, strides=(1,))
    return views[starts]


def windows_of(piece: Piece, rows: Any, offsets: Any) -> Any:
    """Return the bytes around the time of some lines, as an array of `WINDOW` bytes each."""
    import numpy as np

    raw, ends = piece.raw, np.asarray(piece.ends)
    rows = np.asarray(rows)
    loops = compiled()
    if loops is not None:
        return np.frombuffer(loops.windows(raw, ends, rows, offsets, WINDOW), f"S{WINDOW}")
    starts = np.where(rows > 0, ends[rows - 1] + 1, 0) + offsets[rows]
    last = len(raw) - WINDOW
    windows = np.ndarray((max(0, last) + 1,), f"V{WINDOW}", raw.ljust(WINDOW, b"\0"), strides=(1,))
    found = windows[np.clip(starts, 0, max(0, last))].view(f"S{WINDOW}")
    for at in np.flatnonzero(starts > last).tolist():
        found[at] = raw[starts[at] :]
    return found


def _encoded(values: Any) -> tuple[Any, Any]:
    """Return the code of each row of bytes, and the place of the first row of each code.

    Rows are told apart by 64 bits of a hash with multipliers of this process: short of a chance of one
    in some 10^9 for a hundred thousand rows, as by their bytes, at a third of the cost.
    """
    import numpy as np
    import pyarrow as pa

    words = values.view(np.uint64)
    multipliers = _multipliers(words.shape[1])
    mixed = words * multipliers[0]
    mixed ^= mixed >> np.uint64(32)
    mixed *= multipliers[1]
    codes = pa.array(mixed.sum(axis=1)).dictionary_encode().indices.to_numpy()
    first = np.empty(int(codes.max(initial=-1)) + 1, np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return codes, first


@lru_cache(maxsize=64)
def _multipliers(count: int) -> Any:
    import numpy as np

    drawn = np.frombuffer(os.urandom(16 * count), np.uint64).reshape(2, count)
    return drawn | np.uint64(1)
