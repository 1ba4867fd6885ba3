"""One pass over one file: which signatures hit where, which lines to keep, what the series say.

Memory stays bounded whatever the size: hits are kept up to a number per signature (and at least
one per rank label), lines around causes are kept within a budget, everything else is counted.
A file up to `WHOLE_FILE` bytes is kept whole.
"""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import field, replace
from itertools import chain, islice, repeat
from operator import attrgetter
from typing import IO

from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy
from rerail.log_parsers.binary_content import looks_binary
from rerail.log_parsers.candidate_line import CandidateLine, harmless_of, stem
from rerail.log_parsers.candidates import Candidates
from rerail.log_parsers.facts import FactCounter, Facts
from rerail.log_parsers.flight_recorder.recognise import looks_like_flight_recorder
from rerail.log_parsers.hit_room import WORDINGS, HitRoom
from rerail.log_parsers.kept_lines import KeptLines
from rerail.log_parsers.known_hits import KnownHits, OnlyCounted
from rerail.log_parsers.known_lines import compiled
from rerail.log_parsers.last_hits import LastHits
from rerail.log_parsers.last_steps import LastSteps, behind_others
from rerail.log_parsers.line_marks import LineMarks
from rerail.log_parsers.metrics import StepReader
from rerail.log_parsers.mined_layouts import LEAST_ROWS
from rerail.log_parsers.nearby_lines import (
    TAIL_LINES,
    Above,
    End,
    Wanted,
    labelled_above,
    labelled_below,
    labelled_from_top,
)
from rerail.log_parsers.opening import (
    Counted,
    Joined,
    Part,
    is_damage,
    lies_at,
    open_source,
    stopped,
    unopened,
    with_hole,
    with_junk,
)
from rerail.log_parsers.piece import Piece
from rerail.log_parsers.redactor import Redactor
from rerail.log_parsers.room import WHOLE_FILE, Room
from rerail.log_parsers.scan import Scanner, Signature, searchable
from rerail.log_parsers.skeletons import SkeletonMiner
from rerail.log_parsers.sources import Problem, Source, iter_chunks
from rerail.log_parsers.step_mining import StepMiner, beside_known, may_name_a_loss, unknown_alone
from rerail.log_parsers.step_numbers import StepRow
from rerail.log_parsers.tallies import sieves_pay, vectors_pay
from rerail.log_parsers.text import MAX_LINE, clean
from rerail.log_parsers.unnamed_series import STEPLESS

# Each piece costs a millisecond or more, by how many kinds of lines it has, whatever its size. With pieces of 512 kB
# a pass took 1.1 to 1.4 times as long, over real and made-up logs; larger ones take memory, and steps are sampled by them.
# Behind the first 16 MB pieces of 3 MB save 5 to 35 % of a pass, for 40 MB of memory; so does a whole file of that size.
CHUNK = 1 << 20
_SMALL_CHUNKS, _TIMES_LARGER = 16, 3
_BEFORE, _AFTER = 60, 25
_FAR_BEFORE, _FAR_AFTER = 3000, 1500
ROOM = Room()
_LONG_PIECE = 2 << 20  # bytes of a piece that holds a line longer than a piece is meant to be
_LONG_FRONT, _LONG_BEFORE, _LONG_LEAD, _LONG_BEHIND, _LONG_TRIES = 64, 2_000, 32, 1_000, 16

_LABEL = lazy(
    rb"^\s*(?:\[?(?:rank|default|Rank )?\d{1,6}\]?:|\[\d+,\d+\]<|\([A-Za-z_]\w*[^)]{0,60}pid=\d+|[a-z][\w.-]*\d[\w.-]*:)"
    # torchrun's label of the local rank says on which of many nodes only with what follows.
    rb"(?:\[rank\d{1,6}\]:)?"
)

_PLACE = attrgetter("line", "signature")


@dataclass(slots=True)
class Hit:
    """A confirmed hit: line number and signature index."""

    line: int
    signature: int


@dataclass(slots=True)
class FileSurvey:
    """What one pass over a file brought back; small, and safe to send between processes."""

    source: Source
    lines: int = 0
    size: int = 0
    whole: bool = True
    kept: dict[int, bytes] = field(default_factory=dict)
    hits: list[Hit] = field(default_factory=list)
    counts: dict[int, int] = field(default_factory=dict)
    steps: Sequence[StepRow] = field(default_factory=list)
    last_nonempty: int = 0
    ends_with_newline: bool = True
    problems: list[Problem] = field(default_factory=list)
    binary: bool = False
    head: bytes = b""
    miner: SkeletonMiner | None = None
    facts: Facts = field(default_factory=Facts)
    marks: LineMarks = field(default_factory=LineMarks)
    counted: Sequence[StepRow] = field(default_factory=list)
    """Rows of lines that count and measure something of which no word says that it is a training step."""
    parts: Sequence[Part] = ()
    """The parts of a rotated log, the oldest first; of any other there are none."""


Progress = Callable[[int], None]


def survey(
    source: Source,
    signatures: Sequence[Signature],
    scanner: Scanner,
    *,
    on_bytes: Progress | None = None,
    mine: bool = False,
    chunk_size: int = CHUNK,
    room: Room = ROOM,
) -> FileSurvey:
    """Read one source once and return its survey.

    With `mine` the templates of all lines are counted as well. Whatever goes wrong while reading
    is reported in `problems`; what was read before it counts.
    """
    reader = FilePass(source, signatures, scanner, room, mine=mine)
    try:
        stream = Joined(source.parts) if source.parts else open_source(source)
    except OSError as error:
        reader.result.problems.append(unopened(source, error))
        return reader.result
    if chunk_size < source.size <= _TIMES_LARGER * chunk_size:
        chunk_size = source.size
    with stream:
        _drain(stream, reader, on_bytes, chunk_size)
    return reader.finish()


def survey_stream(
    source: Source, stream: IO[bytes] | Joined, signatures: Sequence[Signature], scanner: Scanner
) -> FileSurvey:
    """Survey what a stream gives out as if it were this file."""
    reader = FilePass(source, signatures, scanner)
    _drain(stream, reader, None, CHUNK)
    return reader.finish()


def survey_bytes(
    source: Source, data: bytes, signatures: Sequence[Signature], scanner: Scanner
) -> FileSurvey:
    """Survey bytes that are already in memory as if they were this file."""
    return survey_stream(source, io.BytesIO(data), signatures, scanner)


def _drain(
    stream: IO[bytes] | Joined, reader: FilePass, on_bytes: Progress | None, chunk_size: int
) -> None:
    counted = Counted(stream, lambda: reader.result.lines)
    if isinstance(stream, Joined):
        reader.result.parts = stream.parts
    _read_chunks(counted, reader, on_bytes, chunk_size)
    if isinstance(stream, Joined):
        reader.result.problems += stream.problems
        reader.result.marks.clear()  # they would be places in the whole log, which lies nowhere
    if counted.size != reader.result.size:
        reader.result.marks.clear()  # bytes were left out: lines do not lie where they were counted
    reader.result.size = counted.size
    if reader.result.binary:
        return
    name = reader.result.source.name
    if counted.lost:
        reader.result.problems.append(with_hole(name, counted.first_hole, counted.lost))
    if counted.junk:
        reader.result.problems.append(with_junk(name, counted.first_junk, counted.junk))


def _read_chunks(
    stream: Counted, reader: FilePass, on_bytes: Progress | None, chunk_size: int
) -> None:
    chunks: Iterator[bytes] | None = None
    while True:
        try:
            if chunks is None:
                first = stream.read(chunk_size)
                if looks_binary(first) or looks_like_flight_recorder(
                    first[:65536], reader.result.source.name
                ):
                    reader.result.binary, reader.result.head = True, first[:65536]
                    return
                sizes = chain(repeat(chunk_size, _SMALL_CHUNKS), repeat(_TIMES_LARGER * chunk_size))
                chunks = iter_chunks(stream, sizes, first=first)
            chunk = next(chunks, None)
        except Exception as error:
            if not is_damage(error):
                raise
            reader.broken(error)
            return
        if chunk is None:
            return
        reader.feed(chunk)
        if on_bytes is not None:
            on_bytes(len(chunk))


class FilePass:
    """The pass over one file: pieces of whole lines in, a survey out."""

    def __init__(
        self,
        source: Source,
        signatures: Sequence[Signature],
        scanner: Scanner,
        room: Room = ROOM,
        *,
        mine: bool = False,
    ) -> None:
        self._room = room
        self.result = FileSurvey(source, miner=SkeletonMiner() if mine else None)
        self._signatures = signatures
        self._scanner = scanner
        self._cut: dict[int, bytes] = {}
        self._told_long = False
        # Hits of a file that is still held whole, whose surroundings are wanted.
        self._around: list[int] = []
        self._of_one_rank = source.origin.rank is not None
        self._facts = FactCounter(source.origin, room.writers, harmless_of(signatures).mostly)
        self._hits = HitRoom(signatures, room)
        # Wordings that hold what was looked for whenever they were looked at, by signature.
        self._sure: dict[tuple[int, bytes], bool] = {}
        self._last = LastHits(room.last)
        self._kept = KeptLines(self.result.kept, room.keep)
        self._above = Above()
        self._wanted: list[Wanted] = []
        self._small: list[bytes] | None = []
        self._small_bytes = 0
        self._candidates = Candidates(scanner, self.result.miner)
        self._known = KnownHits(self._hits, room.harmless)
        self._end = End(self._room.tail)
        self._crlf = False
        self._continued = False
        self._redactor = Redactor()
        self._steps = StepReader(room.step_rows)
        self._mined: StepMiner | None = None

    def broken(self, error: Exception) -> None:
        """Note that reading stopped."""
        self.result.problems.append(stopped(self.result.source.name, self.result.lines, error))

    def feed(self, chunk: bytes) -> None:
        """Take the next piece of the file; it ends with a line, unless the line is too long for one piece."""
        result, size = self.result, len(chunk)
        first = result.lines + 1
        bulk = vectors_pay(size)
        result.marks.passed(first, result.size, within=self._continued)
        if first == 1 and not result.size:
            self._crlf = chunk[: chunk.find(b"\n") + 1].endswith(b"\r\n")
            self._hits.returns = self._crlf
        # Before anything else sees a byte: what is mined, kept or cited cannot hold a secret.
        raw = piece = self._redactor.mask(
            Piece(chunk), first, tally=bulk and sieves_pay() and not self._crlf
        )
        chunk = raw.raw
        result.ends_with_newline = chunk.endswith(b"\n")
        if self._crlf:
            piece = Piece(chunk.replace(b"\r\n", b"\n"))
        newlines = len(piece.ends)
        if size > _LONG_PIECE and not self._told_long:
            self._tell_long(raw, first)
        self._collect(raw, first)
        if self._small is None and self._wanted:
            self._serve(raw, first)
        whole = bulk and chunk.endswith(b"\n")
        tally = piece.tally(first) if whole else None
        streams = self._facts.read(piece, first, tally, continued=self._continued)
        if self._small is None:
            # The first line of a writer often tells who it is.
            self._kept.keep_rows(raw, first, self._facts.new_rows())
        self._continued = not result.ends_with_newline
        # A file of one rank ends with the last step of it.
        apart = self._facts.several and not self._of_one_rank
        self._steps.feed(piece, first, streams if apart else None)
        if self._small is None and not result.size:
            self._mine_steps(piece)  # the first piece outgrew what is kept whole
        elif self._mined is not None:
            self._mined.feed(piece.lines(), first)
        pairs, seen = self._candidates.of(piece, first, self._hits.present, bulk=bulk)
        counted = None
        sure: set[tuple[int, int]] = set()
        if seen is not None:
            counted, more = self._known.counted(seen, streams)
            if more:
                sure.update(more)
                pairs = sorted({*pairs, *more})
        if pairs or counted is not None:
            self._confirm(raw, first, pairs, streams, counted, sure)
        if self._small is None:
            self._above.add(first, raw)
        result.size += size
        # A line split by force ends without a newline and goes on in the next chunk.
        result.lines = first - 1 + newlines

    def _collect(self, piece: Piece, first: int) -> None:
        if self._small is not None:
            self._small_bytes += len(piece)
            if self._small_bytes <= min(WHOLE_FILE, self._room.whole, self._room.keep):
                self._small.append(piece.raw)
                return
            self._spill(piece)
        self._end.add(first, piece)

    def _spill(self, piece: Piece) -> None:
        """With this piece the file outgrew `WHOLE_FILE`: keep its head, and from here on only what matters."""
        so_far, self._small = self._small, None
        self.result.whole = False
        if not so_far:
            self._kept.keep_rows(piece, 1, range(self._room.head), always=True)
            return
        whole = Piece(b"".join(so_far))
        count = whole.rows if whole.raw else 0
        self._kept.keep_rows(whole, 1, range(min(count, self._room.head)), always=True)
        self._mine_steps(whole)
        self._steps.fill_times(piece, count + 1)
        if count:
            self._kept.keep_rows(whole, 1, [n - 1 for n in self._facts.first_lines()])
            self._kept.keep_rows(
                whole, 1, sorted({hit.line - 1 for hit in self.result.hits}), always=True
            )
        for number in self._around:
            self._keep_around(whole, 1, number - 1)
        start = max(0, count - _FAR_BEFORE)
        self._above.add(start + 1, Piece(whole.from_row(start)))
        start = max(0, count - self._room.tail)
        self._end.add(start + 1, Piece(whole.from_row(start)))

    def _mine_steps(self, piece: Piece) -> None:
        """Learn the step lines of a file that has none of a known form with values, and read those of its beginning."""
        known = self._steps.bare() if self._steps.tells(LEAST_ROWS) else None
        if known == []:
            self._steps.find_times(piece, may_name_a_loss)
            return
        lines = piece.lines()
        miner = StepMiner(within_known=known is not None)
        shown = lines if known is None else [lines[number - 1] for number in known]
        if miner.learn(shown, may_name_a_loss(piece.raw)):
            miner.feed(lines, 1)
            self._mined = miner

    def _confirm(
        self,
        piece: Piece,
        first: int,
        pairs: list[tuple[int, int]],
        streams: Sequence[int],
        counted: OnlyCounted | None,
        sure: Container[tuple[int, int]],
    ) -> None:
        """Look at the candidates, count those that match, and keep what is worth keeping.

        Of the `counted` rows it is known what they show, and of the `sure` candidates that they match.
        """
        shown: defaultdict[int, list[int]] = defaultdict(list)
        together: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
        count = piece.rows
        asked: defaultdict[int, list[int]] = defaultdict(list)
        for row, index in pairs:
            if row < count:
                asked[row].append(index)
        for (row, indices), raw in zip(asked.items(), piece.cut(list(asked)), strict=True):
            line = CandidateLine(raw, stem(raw), int(streams[row]), first + row)
            here: list[int] = []
            for index in indices:
                if self._shows(index, line, known=(row, index) in sure):
                    here.append(index)
                    shown[index].append(row)
            if here:
                members = tuple(here)
                together[members].append(row)
                self._keep_hits(piece, first, row, line, members)
        last = self._room.last
        latest = {index: rows[-last:] for index, rows in shown.items()}
        counts = {index: len(rows) for index, rows in shown.items()}
        if counted is not None:
            for members, number, rows in self._facts.hit_counted(counted, together, last):
                for index in members:
                    counts[index] = counts.get(index, 0) + number
                    latest[index] = latest.get(index, []) + rows
        for members, rows in together.items():
            self._facts.hit(rows, members)
        for index, count in counts.items():
            self.result.counts[index] = self.result.counts.get(index, 0) + count
        self._last.add(piece, first, latest)

    def _shows(self, index: int, line: CandidateLine, *, known: bool) -> bool:
        """Tell whether a line shows a signature, where that is not `known`."""
        wording = index, line.stem
        sure = self._sure.get(wording)
        if sure and self._hits.known(index, line):
            return True
        if self._signatures[index].presence:
            if index not in self._hits.present and self._matches(index, clean(line.raw)):
                self._hits.present.add(index)
            return False
        if len(line.raw) > MAX_LINE and self._matches_in_long(index, line):
            line.cut = (*line.cut, index)
            return True
        if line.text is None and not known:
            line.text = clean(line.raw)
        matches = known or self._matches(index, line.text or "")
        if sure is not matches and len(self._sure) < WORDINGS:
            self._sure[wording] = matches and sure is None
        return matches

    def _matches_in_long(self, index: int, line: CandidateLine) -> bool:
        """Look around the places that the scanner proposes in a line of which only a part is kept."""
        text = searchable(line.raw)
        ends = sorted(end for end, at in self._scanner.candidates(text + b"\n") if at == index)
        for end in ends[:_LONG_TRIES]:
            around = clean(text[max(0, end - _LONG_BEFORE) : end + _LONG_BEHIND])
            match = compiled(self._signatures[index].pattern).search(around)
            if match is not None:
                known = self._cut.get(line.number, text[:_LONG_FRONT])
                window = around[max(0, match.start() - _LONG_LEAD) :].encode()
                if window not in known and len(known) + len(window) < MAX_LINE:
                    known += b" ... " + window
                self._cut[line.number] = known
                return True
        return False

    def _tell_long(self, piece: Piece, first: int) -> None:
        self._told_long = True
        lines = piece.lines()
        row = max(range(len(lines)), key=lambda at: len(lines[at]))
        parts = self.result.parts
        name, number = (
            lies_at(parts, first + row) if parts else (self.result.source.name, first + row)
        )
        self.result.problems.append(
            Problem(
                name,
                f"line {number} is longer than {len(lines[row]) / 1e6:.1f} MB: only its ends, and what"
                " stands around findings, were kept",
                "cut it at blanks (tr ' ' '\\n') if something is missed in it",
            )
        )

    def _keep_hits(
        self, piece: Piece, first: int, row: int, line: CandidateLine, here: tuple[int, ...]
    ) -> None:
        """Keep of what a line shows what there is room for."""
        kept = self._small is not None
        for index, wanted in self._hits.kept_of(line, here):
            self.result.hits.append(Hit(first + row, index))
            if not kept:
                self._kept.keep(first + row, line.raw, always=True)
                kept = True
            if not wanted:
                continue
            if self._small is None:
                self._keep_around(piece, first, row)
            else:
                self._around.append(first + row)

    def _matches(self, index: int, text: str) -> bool:
        return compiled(self._signatures[index].pattern).search(text) is not None

    def _keep_around(self, piece: Piece, first: int, row: int) -> None:
        """Keep the lines around a hit, those in earlier pieces too, and ask for those to come."""
        count = piece.rows
        match = _LABEL.match(piece.line(row))
        if match is None:
            for near in range(max(0, row - _BEFORE), min(count, row + _AFTER + 1)):
                self._kept.keep(first + near, piece.line(near))
            for number, line in self._above.upwards(first, _BEFORE - row):
                self._kept.keep(number, line)
            self._want(None, row + _AFTER + 1 - count, row + _AFTER + 1 - count)
            return
        # Ranks interleave: what belongs to this hit carries the same label, however far above.
        label, kept = match[0], 0
        above = (
            (first + near, piece.line(near))
            for near in labelled_above(piece, label, row, _FAR_BEFORE)
        )
        for number, line in chain(above, self._above.labelled(label, first, _FAR_BEFORE - row)):
            self._kept.keep(number, line)
            kept += 1
            if kept > _BEFORE or b"Traceback (most recent call last)" in line:
                break
        kept = 0
        for near in labelled_below(piece, label, row, _FAR_AFTER):
            self._kept.keep(first + near, piece.line(near))
            kept += 1
            if kept > _AFTER:
                return
        self._want(label, _AFTER + 1 - kept, row + _FAR_AFTER - count)

    def _want(self, label: bytes | None, count: int, within: int) -> None:
        if count > 0 and within > 0:
            self._wanted.append(Wanted(label, count, within))

    def _serve(self, piece: Piece, first: int) -> None:
        """Keep the lines that hits of earlier pieces still ask for."""
        count = piece.rows
        for wanted in self._wanted:
            most = min(wanted.within, count)
            rows = (
                range(most)
                if wanted.label is None
                else labelled_from_top(piece, wanted.label, most)
            )
            near = list(islice(rows, wanted.count))
            self._kept.keep_rows(piece, first, near)
            wanted.count -= len(near)
            wanted.within -= count
        self._wanted = [one for one in self._wanted if one.count > 0 and one.within > 0]

    def survey(self) -> FileSurvey:
        """Return the survey of what was read so far; more may follow."""
        so_far, kept, mined = self.result, self._kept, self._mined
        self.result = replace(
            so_far,
            kept=dict(so_far.kept),
            hits=list(so_far.hits),
            counts=dict(so_far.counts),
            problems=list(so_far.problems),
        )
        self._kept = kept.copy(self.result.kept)
        try:
            return self.finish()
        finally:
            self.result, self._kept, self._mined = so_far, kept, mined

    def finish(self) -> FileSurvey:
        """Return the survey of the whole file."""
        result = self.result
        if not result.ends_with_newline and result.size:
            result.lines += 1
        last_steps = self._steps.last_steps()
        if self._small is not None:
            whole = Piece(b"".join(self._small))
            result.kept.update(enumerate(whole.lines() if whole.raw else [], 1))
            self._mine_steps(whole)
        else:
            if (end := self._end.rows()) is not None:
                number, piece, rows = end
                self._kept.keep_rows(piece, number, rows, always=True)
            self._keep_last_hits()
            steps = self._steps.finish()
            self._kept.keep_lines(self._steps.latest_lines(), always=True)
            self._kept.keep_lines(behind_others(last_steps), always=True)
        for number, raw in self._cut.items():
            result.kept[number] = raw
        last = reversed(sorted(result.kept)[-TAIL_LINES:])
        result.last_nonempty = next((n for n in last if result.kept[n].strip()), 0)
        result.hits.sort(key=_PLACE)
        result.counts.update(dict.fromkeys(self._hits.present, 1))
        result.steps = steps if self._small is None else self._steps.finish()
        if self._mined is not None:
            mined = self._mined.finish()
            if self._mined.within_known:
                result.steps, mined = beside_known(result.steps, mined), []
            else:
                mined = list(unknown_alone(result.steps, mined))
            result.counted = [row for row in mined if row.form in STEPLESS]
            mined = [row for row in mined if row.form not in STEPLESS]
            result.steps = sorted([*result.steps, *mined], key=lambda row: row.line)
            self._kept.keep_lines(list(self._mined.kept.items()), always=True)
        result.facts = self._facts.finish()
        result.facts.last_steps = LastSteps.of(row[:3] for row in last_steps)
        return result

    def _keep_last_hits(self) -> None:
        kept = {(hit.line, hit.signature) for hit in self.result.hits}
        for index, numbers in self._last.keep(self._kept):
            self.result.hits += [Hit(n, index) for n in numbers if (n, index) not in kept]
