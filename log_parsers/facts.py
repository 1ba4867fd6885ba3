"""Exact facts about a file, whatever was kept of it: which stream showed what, how often, first and last.

Lines that are kept word for word are capped; these are not. For every set of signatures that lines show
together, and every stream, there is a count, the first and last line and the bytes around their times; the
same for all lines of a stream. Sets, because lines that show any of several signatures can then be counted
once each. Numbers stand in flat arrays, so a hundred thousand streams take some tens of megabytes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from functools import lru_cache
from heapq import nlargest, nsmallest
from itertools import islice
from typing import Any

from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy
from rerail.log_parsers.early_origin import with_labels, with_records, with_tail
from rerail.log_parsers.known_hits import OnlyCounted, in_order
from rerail.log_parsers.last_steps import LastSteps
from rerail.log_parsers.line_tables import grouped, new_facts
from rerail.log_parsers.line_tails import Tail
from rerail.log_parsers.piece import Piece
from rerail.log_parsers.prefixes import Origin, parse_line
from rerail.log_parsers.room import FIRST_LINES
from rerail.log_parsers.streams import NOBODY, WINDOW, Streams, windows_of
from rerail.log_parsers.tallies import Tally
from rerail.log_parsers.text import ZERO, clean
from rerail.log_parsers.timestamps import WALL, find_stamp
from rerail.log_parsers.voices import FIRST as VOICES
from rerail.log_parsers.voices import Voices

ANY = -1
"""Stands for a signature that every line has."""

_EVERY_LINE = 0

SHIFT = 24  # bits of a key that hold the stream
_MASK = (1 << SHIFT) - 1
_PENDING = 100_000
_LEARNED = 8
_DIGITS = lazy(rb"\d+")
_LARGE = 1 << 19  # bytes of a first piece, from which on a file is worth a look at its own labels
_FEW = 40  # lines that show whether they have known labels
_STAMPED = 400  # bytes of a line, as many as are looked at for its time


@dataclass(frozen=True, slots=True)
class Writer:
    """Who writes a stream, as far as its label tells."""

    rank: int | None
    local_rank: int | None
    node: str | None


@dataclass(frozen=True, slots=True)
class Shown:
    """Some signatures in one stream: how often, and the first and the last line. Windows hold their times."""

    stream: int
    count: int
    first: int
    last: int
    first_window: bytes
    last_window: bytes


@dataclass(slots=True)
class Facts:
    """The facts of one file in columns, sorted by set of signatures and stream; safe to send between processes."""

    examples: list[bytes] = field(default_factory=lambda: [b""])
    ends: array[int] = field(default_factory=lambda: array("i", [0]))
    sets: list[tuple[int, ...]] = field(default_factory=lambda: [(ANY,)])
    keys: array[int] = field(default_factory=lambda: array("q"))
    counts: array[int] = field(default_factory=lambda: array("q"))
    firsts: array[int] = field(default_factory=lambda: array("q"))
    lasts: array[int] = field(default_factory=lambda: array("q"))
    first_windows: bytes = b""
    last_windows: bytes = b""
    last_stamped: bytes = b""
    """The beginning of the last line that tells a wall-clock time; nothing where none does."""
    last_steps: LastSteps = field(default_factory=LastSteps)
    """Where a file has several streams, the last step of each."""
    by_records: bool = False
    """Whether the streams were told apart by the fields of records."""
    tail: Tail | None = None
    """What stands around the rank at the end of lines, where the streams were told apart by it."""

    def of(self, *signatures: int) -> Iterator[Shown]:
        """Yield what is known of the lines that show any of the signatures (or `ANY` line), by stream.

        A stream comes as often as there are sets of signatures that its lines show together.
        """
        return map(self._shown, self._at(signatures))

    def streams(self, *signatures: int) -> set[int]:
        """Return the streams in which a line shows any of the signatures."""
        return {self.keys[at] & _MASK for at in self._at(signatures)}

    def earliest(self, most: int, *signatures: int) -> list[Shown]:
        """Return, of what `of` yields, those that begin first, in order."""
        return [*map(self._shown, nsmallest(most, self._at(signatures), self.firsts.__getitem__))]

    def latest(self, most: int, *signatures: int) -> list[Shown]:
        """Return, of what `of` yields, those that end last, the last one first."""
        return [*map(self._shown, nlargest(most, self._at(signatures), self.lasts.__getitem__))]

    def total(self, *signatures: int) -> int:
        """Return how many lines show any of the signatures."""
        return sum(
            sum(self.counts[slice(*self._rows(number))])
            for number, members in enumerate(self.sets)
            if any(signature in members for signature in signatures)
        )

    def signatures(self) -> list[int]:
        """Return the signatures that occur."""
        return sorted({signature for members in self.sets for signature in members} - {ANY})

    def _at(self, signatures: tuple[int, ...]) -> Iterator[int]:
        for number, members in enumerate(self.sets):
            if any(signature in members for signature in signatures):
                yield from range(*self._rows(number))

    def _rows(self, number: int) -> tuple[int, int]:
        first = bisect_left(self.keys, number << SHIFT)
        return first, bisect_left(self.keys, (number + 1) << SHIFT, first)

    def writers(self, origin: Origin, shapes: Shapes | None = None) -> list[Writer]:
        """Return who writes each stream, by what is known of the file once all of it is read.

        Args:
            origin: what is known of the file.
            shapes: what was learned of the labels of other files of this origin; more is added to it.
        """
        shapes = {} if shapes is None else shapes
        found: list[Writer] = []
        for example, end in zip(self.examples, self.ends, strict=True):
            front = example[:end]
            shape = shapes.setdefault(front.translate(ZERO), _Shape())
            known = shape.read(front) if end else None
            if known is None:
                known = _writer(example, origin)
                shape.learn(front, known)
            found.append(known)
        return found

    def _shown(self, at: int) -> Shown:
        window = slice(at * WINDOW, (at + 1) * WINDOW)
        return Shown(
            self.keys[at] & _MASK, self.counts[at], self.firsts[at], self.lasts[at],
            self.first_windows[window].rstrip(b"\0"), self.last_windows[window].rstrip(b"\0"),
        )  # fmt: skip


def time_in(window: bytes, *, year: int) -> float | None:
    """Return the wall-clock time that the bytes around a stamp tell, in seconds since the epoch."""
    line = window.partition(b"\n")[0]
    stamp = find_stamp(clean(line), year=year)
    return stamp.seconds if stamp is not None and stamp.clock == WALL else None


def _writer(example: bytes, origin: Origin) -> Writer:
    line = parse_line("", 1, clean(example), origin=origin, year=1970)
    return Writer(line.rank, line.local_rank, line.node)


class _Shape:
    """Fronts that differ in nothing but digits: after some of them, where rank, local rank and host stand."""

    def __init__(self) -> None:
        self._seen = 0
        self._places: list[set[tuple[int, int] | None]] = []

    def learn(self, front: bytes, known: Writer) -> None:
        self._seen += 1
        runs = [match.span() for match in _DIGITS.finditer(front)]
        found: list[set[tuple[int, int] | None]] = [
            {None} if number is None else {(a, b) for a, b in runs if int(front[a:b]) == number}
            for number in (known.rank, known.local_rank)
        ]
        at = front.find(known.node.encode()) if known.node else 0
        found.append(
            {None} if known.node is None else {(at, at + len(known.node))} if at >= 0 else set()
        )
        self._places = (
            [a & b for a, b in zip(self._places, found, strict=True)] if self._places else found
        )

    def read(self, front: bytes) -> Writer | None:
        """Return who writes a line with this front, or None where too little was learned."""
        if self._seen < _LEARNED:
            return None
        rank, local, node = (_at_places(front, places) for places in self._places)
        # Where several places told the same so far, a front on which they differ is learned from.
        if rank is None or local is None or node is None:
            return None
        return Writer(
            int(rank) if rank else None, int(local) if local else None, node.decode() if node else None
        )  # fmt: skip


def _at_places(front: bytes, places: set[tuple[int, int] | None]) -> bytes | None:
    """Return what stands at all of these places of a front, nothing for no place; None where they differ."""
    if len(places) == 1:
        (place,) = places
        return b"" if place is None else front[place[0] : place[1]]
    texts = {b"" if place is None else front[slice(*place)] for place in places}
    return texts.pop() if len(texts) == 1 else None


Shapes = dict[bytes, _Shape]
"""What was learned of fronts, by the front with its digits zeroed; of files of one origin."""


class FactCounter:
    """Counts while a file is read, piece by piece; tells where the first so many `writers` begin."""

    def __init__(
        self,
        origin: Origin,
        writers: int = FIRST_LINES,
        harmless: Callable[[tuple[int, ...]], bool] = lambda _: False,
    ) -> None:
        """Who wrote lines without a label is not asked of `harmless` ones, nor where all of a file is of one rank."""
        self._writers = writers
        self._voices = Voices() if origin.rank is None else None
        self._harmless = lru_cache(maxsize=4_096)(harmless)
        self.streams = Streams(origin)
        self._sets: dict[tuple[int, ...], int] = {(ANY,): _EVERY_LINE}
        self._table: dict[int, list[Any]] = {}
        self._counted = new_facts()
        # By set of the lines that are only counted, its number here.
        self._members: Sequence[tuple[int, ...]] | None = None
        self._bases: Any = None
        self._before = 0  # keys that were counted before the last piece
        self._columns: Any = None
        self._pending: list[Any] = []
        self._pending_rows = 0
        self._here: tuple[Piece, int, Sequence[int], Sequence[int]] | None = None
        self._vector = False
        self._open = NOBODY
        self._origin = origin
        self._known = 0
        self._last_stamped = b""

    def read(
        self, piece: Piece, first_line: int, tally: Tally | None, *, continued: bool = False
    ) -> Any:
        """Take the next piece and return the stream of each of its lines.

        Args:
            piece: whole lines.
            first_line: the number of its first line.
            tally: its skeletons with codes, where numpy and pyarrow are at hand.
            continued: its first line began in the piece before.
        """
        if first_line == 1 and not continued:
            self._learn(piece)
        plain = tally is None or tally.codes is None or continued
        self._vector = not plain
        if self._vector and tally is not None:
            streams, windows = self.streams.of_piece(piece, tally)
            self._take_stamped(piece, 0)
            self._here = piece, first_line, streams, windows
            self._before = 0 if self._counted is None else len(self._counted)
            self._add_vector(streams, None, _EVERY_LINE)
            return streams
        listed, offsets = self.streams.of_lines(piece.lines())
        self._take_stamped(piece, int(continued))
        self._here = piece, first_line, listed, offsets
        if continued and listed:
            listed[0] = self._open
        self._add_plain(islice(enumerate(listed), continued, None), _EVERY_LINE)
        self._open = listed[-1] if listed else NOBODY
        return listed

    def _learn(self, piece: Piece) -> None:
        """Learn from the first piece of a file how its lines tell who writes them, where no known label does."""
        if self._voices is None:
            return
        origin = with_tail(with_records(self._origin, piece.raw), piece.raw)
        if origin is self._origin and len(piece) >= _LARGE:
            few = piece.cut(range(0, piece.rows, max(1, piece.rows // _FEW)))
            if 2 * Streams(origin).of_lines(few)[0].count(NOBODY) > len(few):
                origin = with_labels(origin, piece.lines())
        if origin is not self._origin:
            self.streams = Streams(origin)

    @property
    def several(self) -> bool:
        """Whether lines of several labels were read."""
        return len(self.streams.writers.examples) > 2

    def _take_stamped(self, piece: Piece, least: int) -> None:
        row = self.streams.stamped
        if row >= least:
            self._last_stamped = piece.line(row)[:_STAMPED]

    def new_rows(self) -> Any:
        """Return on which rows of the piece that was read last one of the first streams begins, in order."""
        assert self._here is not None
        _, first_line, streams, _ = self._here
        known, self._known = self._known, len(self.streams.writers.examples)
        most = min(self._known, self._writers)
        if known >= most:
            return []
        if self._vector:
            import numpy as np

            if self._counted is not None:
                found = self._counted.firsts(self._before, known, most)
                return np.frombuffer(found, np.int64) - first_line
            each = np.asarray(streams)
            late = np.flatnonzero((each >= known) & (each < most))[::-1]
            first_rows = np.full(most - known, -1)
            first_rows[each[late] - known] = late  # of several rows the first is written last
            return np.sort(first_rows[first_rows >= 0])
        rows: dict[int, int] = {}
        for row, stream in enumerate(streams):
            if known <= stream < most:
                rows.setdefault(int(stream), row)
        return sorted(rows.values())

    def first_lines(self) -> list[int]:
        """Return the numbers of the lines on which the first streams begin, of all that were read so far."""
        self._known = len(self.streams.writers.examples) if self._here is not None else 0
        first = {key: row[1] for key, row in self._table.items() if key < self._writers}
        for keys, _, lines, *_ in [
            *([] if self._columns is None else [self._columns]),
            *self._pending,
            *([self._counted_columns()] if self._counted else []),
        ]:
            for key, line in zip(keys.tolist(), lines.tolist(), strict=True):
                if key < self._writers:
                    first[key] = min(line, first.get(key, line))
        return sorted(first.values())

    def hit(self, rows: Sequence[int], signatures: tuple[int, ...]) -> None:
        """Count lines of the piece that was read last, by row, in order, each once with all that it shows."""
        assert self._here is not None
        number = self._sets.setdefault(signatures, len(self._sets))
        streams: Any = self._here[2]
        if not self._harmless(signatures):
            nobody = [row for row in rows if streams[row] == NOBODY]
            streams = self._with_voices(streams, nobody, number)
        if self._vector and len(rows) > 1:
            import numpy as np

            self._add_vector(streams, np.asarray(rows, np.int64), number)
        else:
            self._add_plain(((row, streams[row]) for row in rows), number)

    def _with_voices(self, streams: Any, rows: Sequence[int], number: int) -> Any:
        """Return the streams of all lines, where some rows are of nobody with who may have written them."""
        assert self._here is not None
        if self._voices is None or not len(rows):
            return streams
        voices = self._voices.of(self._here[0].cut(rows), number)
        if isinstance(streams, list):
            told = dict(zip(rows, voices, strict=True))
            return [told.get(row, stream) for row, stream in enumerate(streams)]
        streams = streams.copy()
        streams[rows] = voices
        return streams

    def hit_counted(
        self, counted: OnlyCounted, more: dict[tuple[int, ...], list[int]], most: int
    ) -> list[tuple[tuple[int, ...], int, list[int]]]:
        """Count lines of the piece that was read last, each once with all that it shows.

        Rows that show the same as some of these are taken out of `more` where they are to be counted together.

        Returns:
            What lines show, how many of these do, and the last rows, at most so many.
        """
        assert self._here is not None
        if self._counted is None or not self._vector:
            told = []
            for members, rows in counted.by_members().items():
                ordered = in_order(rows, more.pop(members, ()))
                self.hit(ordered, members)
                told.append((members, len(rows), ordered[-most:].tolist()))
            return told
        import numpy as np

        piece, first_line, streams, offsets = self._here
        members_of = counted.members
        if self._members is not members_of:
            self._members, self._bases = members_of, np.zeros(0, np.int64)
        if len(self._bases) < len(members_of):
            wider = np.full(2 * len(members_of), -1, np.int64)
            wider[: len(self._bases)] = self._bases
            self._bases = wider
        there = np.zeros(len(self._bases), np.bool_)
        there[counted.sets] = True
        for number in np.flatnonzero(there & (self._bases < 0)).tolist():
            known = self._sets.setdefault(members_of[number], len(self._sets))
            self._bases[number] = known << SHIFT
        nobody = np.flatnonzero(streams[counted.rows] == NOBODY)
        for number in np.unique(counted.sets[nobody]).tolist():
            if not self._harmless(members_of[number]):
                rows = counted.rows[nobody[counted.sets[nobody] == number]].tolist()
                streams = self._with_voices(streams, rows, int(self._bases[number]) >> SHIFT)
        ends = np.asarray(piece.ends)
        columns = self._counted.add_sets(
            piece.raw, ends, streams, offsets, counted.rows, counted.sets, self._bases, first_line, most
        )  # fmt: skip
        sets, counts, rows = (np.frombuffer(column, np.int64) for column in columns)
        last = rows.reshape(len(sets), most).tolist()
        return [
            (members_of[number], count, own[:count])
            for number, count, own in zip(sets.tolist(), counts.tolist(), last, strict=True)
        ]

    def _add_plain(self, pairs: Iterable[tuple[int, int]], number: int) -> None:
        assert self._here is not None
        piece, first_line, _, offsets = self._here
        base, table = number << SHIFT, self._table
        lines = None if self._vector else piece.lines()
        for row, stream in pairs:
            found = table.get(base | int(stream))
            if lines is not None:
                raw = lines[row]
            else:
                ends = piece.ends
                start = int(ends[row - 1]) + 1 if row else 0
                raw = piece.raw[start : start + int(offsets[row]) + WINDOW]
            window = raw[offsets[row] : offsets[row] + WINDOW]
            if found is None:
                table[base | int(stream)] = [1, first_line + row, first_line + row, window, window]
            else:
                found[0] += 1
                found[2], found[4] = first_line + row, window

    def _add_vector(self, streams: Any, rows: Any, number: int) -> None:
        import numpy as np

        assert self._here is not None
        piece, first_line, _, offsets = self._here
        if self._counted is not None:
            ends = np.asarray(piece.ends)
            self._counted.add(piece.raw, ends, streams, offsets, rows, number << SHIFT, first_line)
            return
        present, counts, first, last = grouped(streams, rows)
        self._pending.append((
            present.astype(np.int64) + (number << SHIFT), counts, first + first_line, last + first_line,
            windows_of(piece, first, offsets), windows_of(piece, last, offsets),
        ))  # fmt: skip
        self._pending_rows += len(present)
        known = 0 if self._columns is None else len(self._columns[0])
        if self._pending_rows > max(_PENDING, known // 2):
            self._merge()

    def _merge(self) -> None:
        """Bring together what the pieces told, in order of keys and of lines."""
        import numpy as np

        parts = ([] if self._columns is None else [self._columns]) + self._pending
        self._pending, self._pending_rows = [], 0
        keys, counts, firsts, lasts, first_windows, last_windows = (
            np.concatenate(column) for column in zip(*parts, strict=True)
        )
        order = np.argsort(keys, kind="stable")  # the pieces come in order of their lines
        keys = keys[order]
        starts = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
        stops = np.concatenate((starts[1:], [len(keys)])) - 1
        self._columns = (
            keys[starts],
            np.add.reduceat(counts[order], starts),
            firsts[order[starts]],
            lasts[order[stops]],
            first_windows[order[starts]],
            last_windows[order[stops]],
        )

    def finish(self) -> Facts:
        """Return the facts of the whole file."""
        labelled = self.streams.writers
        found = Facts(labelled.examples, labelled.ends, list(self._sets))
        if self._voices is not None and self._voices.examples:
            found.examples = labelled.examples + self._voices.examples
            found.ends = labelled.ends + self._voices.ends
        found.last_stamped, found.by_records = self._last_stamped, self.streams.by_records
        found.tail = self.streams.tail
        if self._pending:
            self._merge()
        columns = self._counted_columns() if self._counted else self._columns
        if columns is None:
            self._from_table(found)
            self._number_voices(found)
            return found
        if self._table:
            columns = _merged([columns, _table_columns(self._table)])
        keys, counts, firsts, lasts, first_windows, last_windows = columns
        for column, values in (
            (found.keys, keys),
            (found.counts, counts),
            (found.firsts, firsts),
            (found.lasts, lasts),
        ):
            column.frombytes(values.view("u1"))
        found.first_windows, found.last_windows = first_windows.tobytes(), last_windows.tobytes()
        self._number_voices(found)
        return found

    def _number_voices(self, found: Facts) -> None:
        """Number who spoke without a label behind the labelled writers; the keys stay in order."""
        behind = VOICES - len(self.streams.writers.examples)
        if len(found.examples) > len(self.streams.writers.examples):
            found.keys = array("q", [k - behind if k & _MASK >= VOICES else k for k in found.keys])

    def _counted_columns(self) -> tuple[Any, ...]:
        """Return what the compiled loops counted, in order of keys."""
        import numpy as np

        # Mostly in order already, which the stable way makes use of.
        order = np.argsort(np.frombuffer(self._counted.keys(), np.int64), kind="stable")
        columns = self._counted.columns(order)
        numbers = [np.frombuffer(column, np.int64) for column in columns[:4]]
        return (*numbers, *(np.frombuffer(column, f"S{WINDOW}") for column in columns[4:]))

    def _from_table(self, found: Facts) -> None:
        first, last = [], []
        for key in sorted(self._table):
            count, first_line, last_line, first_window, last_window = self._table[key]
            found.keys.append(key)
            found.counts.append(count)
            found.firsts.append(first_line)
            found.lasts.append(last_line)
            first.append(first_window.ljust(WINDOW, b"\0"))
            last.append(last_window.ljust(WINDOW, b"\0"))
        found.first_windows, found.last_windows = b"".join(first), b"".join(last)


def _merged(parts: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Merge the lines that were counted one by one with the others: either may come first."""
    import numpy as np

    keys, counts, firsts, lasts, first_windows, last_windows = (
        np.concatenate(column) for column in zip(*parts, strict=True)
    )
    by_first, by_last = np.lexsort((firsts, keys)), np.lexsort((lasts, keys))
    ordered = keys[by_first]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    stops = np.concatenate((starts[1:], [len(keys)])) - 1
    return (
        ordered[starts],
        np.add.reduceat(counts[by_first], starts),
        firsts[by_first[starts]],
        lasts[by_last[stops]],
        first_windows[by_first[starts]],
        last_windows[by_last[stops]],
    )


def _table_columns(table: dict[int, list[Any]]) -> tuple[Any, ...]:
    import numpy as np

    count = len(table)
    rows = list(table.values())
    return (
        np.fromiter(table, np.int64, count),
        *(np.fromiter((row[at] for row in rows), np.int64, count) for at in range(3)),
        *(np.array([row[at] for row in rows], f"S{WINDOW}") for at in (3, 4)),
    )
