"""Step lines of training frameworks: step, loss, step time, gradient norm, at their log lines.

The forms of training frameworks and the plain `step N loss X` that people write themselves are `step_lines.yaml`.
It reads numbers; whether they are good is for the detectors.
"""

from __future__ import annotations

import re
import threading
from array import array
from collections import deque
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rerail.log_parsers.barren_lines import BarrenKinds, BarrenLines
from rerail.log_parsers.digit_blind import digit_blind
from rerail.log_parsers.form_presence import Presence
from rerail.log_parsers.last_lines import LastLines
from rerail.log_parsers.line_tables import taken
from rerail.log_parsers.piece import Piece, ends_of_frames, rows_of
from rerail.log_parsers.step_forms import Followed, StepForm, forms
from rerail.log_parsers.step_layouts import Laid, Span, StepLayouts
from rerail.log_parsers.step_numbers import (
    EVALUATION,
    StepRow,
    has_layout,
    labelled,
    read_row,
    row_alike,
)
from rerail.log_parsers.step_rows import Columns, StepRows
from rerail.log_parsers.text import ZERO

if TYPE_CHECKING:
    from rerail.log_parsers.line_times import LineTimes

MAX_ROWS = 200_000
# Progress bars count images, shards and files too; they show life, not training steps.
BAR = "bar"
WEAK_FORMS = frozenset({BAR, EVALUATION})
DENSE_ROWS = 60_000
_MANY_RANKS = 8
_DENSE_OF_EACH, _DENSE_OF_MANY = 128, 16_000  # rows of a rank, of all
_MOST_LATEST, _LONGEST_LATEST = 4_096, 4_000
_MOST_ALIKE, _LONGEST_ALIKE = 2_000, 2_000
_LAST_CHUNKS, _FEWEST_LAST_CHUNKS = 8, 2
_FEWEST_STREAMS = 2

_LOOK_BACK = 24  # bytes in front of a form in which its guard stands
_AHEAD = 400  # bytes behind it in which what must follow does
_FRAMES_OF_LINE = 2_000
_FEW_FORMS = 6
_MOSTLY = 0.5  # share of the lines of a piece above which it is read as it is


class StepReader:
    """Collects the step rows of one file, piece by piece.

    A file with more rows than are of use is sampled: from `DENSE_ROWS` on (fewer where many ranks
    share the file) only every second chunk is read, then every fourth, and so on. The beginning
    is read in full, and so are the last chunks, for a run ends where it fails: of many ranks as many
    as show the last step of each. `most` rows are read in full of a file of one rank.
    """

    def __init__(self, most: int = MAX_ROWS) -> None:
        self.rows = StepRows()
        self._most = most
        self._seen: set[str] = set()
        self._kinds = BarrenKinds()
        self._layouts = StepLayouts()
        self._ranks: set[int | None] = set()
        self._stride = 1
        self._number = 0
        self._dense = min(DENSE_ROWS, most)
        self._full_at = self._dense
        last = _LAST_CHUNKS if most >= DENSE_ROWS else _LAST_CHUNKS // 4
        self._unread: deque[tuple[Piece, int]] = deque(maxlen=last)
        self._latest: dict[int | None, tuple[int, bytes]] = {}
        # Where numbers stand in lines that differ in digits alone; no search below tells digits apart, but `_SAMPLES`.
        self._alike: dict[tuple[str, bytes], dict[str, Span]] = {}
        self._times: LineTimes | None = None
        self._last = LastLines()

    def feed(self, piece: Piece, first_line: int, streams: Any = None) -> None:
        """Read one piece of whole lines whose first line has the number `first_line`.

        Of each of the `streams` of its lines, where these are told, the last step is found whatever is left out.
        """
        self._number += 1
        if self._number % self._stride:
            self._unread.append((piece, first_line))
            if streams is not None:
                self._last.add(piece, first_line, self._may_tell(piece, first_line), streams)
            return
        found = self._feed(piece, first_line)
        if streams is not None:
            rows = self._may_tell(piece, first_line, found)
            self._last.add(piece, first_line, rows, streams)
        many = len(self._ranks) >= _MANY_RANKS
        if many and self._stride == 1:
            wanted = max(_DENSE_OF_MANY // 2, _DENSE_OF_EACH * len(self._ranks))
            self._dense = min(DENSE_ROWS, self._most, _DENSE_OF_MANY, wanted)
            self._full_at = self._dense
        if len(self.rows) >= self._full_at:
            if self._stride == 1 and not many and len(self.rows) < self._most:
                self._full_at = self._most
                return
            self._stride *= 2
            self._full_at = len(self.rows) + self._dense // 4

    def finish(self) -> StepRows:
        """Read the last chunks, if they were left out, and return the rows in order of lines."""
        latest = _latest_of(self.rows.parts())
        many, read = len(latest) >= _MANY_RANKS, 0
        while self._unread:
            piece, first_line = self._unread.pop()
            if many and read >= _FEWEST_LAST_CHUNKS and min(latest.values()) >= first_line:
                break  # the last step of every rank stands behind it
            known = StepRows()
            known, self.rows = self.rows, known
            self._feed(piece, first_line)
            known, self.rows = self.rows, known
            for rank, line in _latest_of(known.parts()).items():
                latest[rank] = max(line, latest.get(rank, 0))
            for part in known.parts():
                self.rows.take(part)
            read += 1
        self._unread.clear()
        return self.rows.copy()

    def _may_tell(self, piece: Piece, first_line: int, found: Collection[int] | None = None) -> Any:
        """Return the rows of a piece that may be step lines; where that is not known those on which they were `found`."""
        known = _presence().lines(piece, _all_forms())
        if known is not None:
            return self._kinds.but_barren(piece.known_tally, known[1])
        if found is None:
            rows, self.rows = self.rows, StepRows()
            found = self._read_piece(piece, first_line)
            self.rows = rows
        return [number - first_line for number in sorted(found)]

    def last_steps(self) -> list[tuple[int, int, int, bytes]]:
        """Return (stream, number of the line, step, line) of the last step line of each stream that `feed` was told of."""
        lines = self._last.found()
        if len(lines) < _FEWEST_STREAMS:
            return []
        rows, self.rows = self.rows, StepRows()
        piece = Piece(b"".join(line + b"\n" for _, _, line in lines))
        self._find(piece, 1, forms(), [number for number, _, _ in lines])
        rows, self.rows = self.rows, rows
        step_of = {
            row.line: row.step
            for row in rows.unread()
            if row.form not in WEAK_FORMS and row.step is not None
        }
        return [
            (stream, number, step_of[number], line)
            for number, stream, line in lines
            if number in step_of
        ]

    def _feed(self, piece: Piece, first_line: int) -> Collection[int]:
        if self._times is None:
            return self._read_piece(piece, first_line)
        parts = self.rows.parts()
        last = (
            max(0, len(parts) - 1),
            len(parts[-1]) if parts and isinstance(parts[-1], list) else 0,
        )
        found = self._read_piece(piece, first_line)
        self.fill_times(piece, first_line, last)
        return found

    def _read_piece(self, piece: Piece, first_line: int) -> Collection[int]:
        """Read a piece; return the numbers of its step lines where its skeletons are not known."""
        # Steps may begin behind any amount of other text, as that of a library that was told to say all that it does.
        known = _presence().lines(piece, _all_forms())
        if known is None:
            places = _occurring(piece, range(len(forms())))
            return self._find(piece, first_line, [forms()[at] for at in places])
        present, rows = known
        if not present:
            return ()
        some = self._kinds.some(piece.known_tally, rows)
        left = self._kinds.left(self._among(piece, first_line, present, some))
        if len(left):
            self._among(piece, first_line, present, left)
        return ()

    def _among(self, piece: Piece, first_line: int, present: int, rows: Any) -> Sequence[int]:
        """Read the step lines of forms among some rows of a piece, and return on which rows they stand."""
        barren = None if present & ~_blind_forms() else _barren()
        if barren is not None:
            rows = barren.others(piece, rows)
            if not len(rows):
                return []
        some_forms = [form for at, form in enumerate(forms()) if present >> at & 1]
        if len(rows) > _MOSTLY * len(piece.ends) and not self._kinds.left_out:
            found = self._find(piece, first_line, some_forms)
        else:
            numbers = (rows + first_line).tolist()
            found = self._find(Piece(taken(piece, rows)[0]), first_line, some_forms, numbers)
        on = [number - first_line for number in found]
        if barren is not None:
            barren.found(on)
        return on

    def _find(
        self,
        piece: Piece,
        first_line: int,
        wanted: Sequence[StepForm],
        numbers: Sequence[int] | None = None,
    ) -> set[int]:
        """Read the step lines of some forms in a piece, and return their numbers.

        `numbers` are those of its lines, if they are only some.
        """
        found: set[int] = set()
        known, others = self._layouts.lines(dict.fromkeys(form.name for form in wanted), piece.text)
        if known is not None:
            found.update(self._take(piece, first_line, known, numbers))
            if not others:
                return found
            numbers = [
                first_line + row if numbers is None else numbers[row] for row in others or ()
            ]
            piece = Piece(_some_lines(piece.text, others or ()))
        found.update(self._search(piece, first_line, wanted, numbers))
        return found

    def _search(
        self,
        piece: Piece,
        first_line: int,
        wanted: Sequence[StepForm],
        numbers: Sequence[int] | None,
    ) -> set[int]:
        """Look for the forms in all lines of a piece, and return the numbers of those that have one."""
        chunk, ends = piece.text, piece.text_ends
        # A progress bar draws its frames into one line, each behind a carriage return.
        if b"\r" not in chunk:
            frame_ends = ends
        else:
            frame_ends = piece.frame_ends if chunk is piece.raw else ends_of_frames(chunk)
        found: dict[int, tuple[str, re.Match[bytes]]] = {}
        for form in wanted:
            name, guard, follows = form.name, form.guard, form.follows
            matches = [
                match
                for match in form.pattern.finditer(chunk)
                if guard is None or _stands_behind(guard, chunk, match.start())
            ]
            if follows is not None:
                matches = [m for m in matches if _is_followed(chunk, m.end(), follows)]
            if not matches:
                continue
            for frame, match in zip(
                rows_of([m.start() for m in matches], frame_ends), matches, strict=True
            ):
                earlier = found.get(frame)
                if earlier is None or (earlier[0] == name and match.start() < earlier[1].start()):
                    found[frame] = (name, match)
        if not found:
            return set()
        self._seen.update(name for name, _ in found.values())
        frames = sorted(found)
        stops = frame_ends if isinstance(frame_ends, list) else frame_ends.tolist()
        starts = [stops[frame - 1] + 1 if frame else 0 for frame in frames]
        rows = frames if frame_ends is ends else rows_of(starts, ends)
        kept = _kept_frames(rows, all_frames=self._seen == {BAR})
        ranks: dict[int, int | None] = {}
        latest: dict[int | None, int] = {}
        for place in kept:
            frame, start, row = frames[place], starts[place], rows[place]
            name, match = found[frame]
            text = chunk[start : stops[frame] if frame < len(stops) else len(chunk)][:4000]
            number = first_line + row if numbers is None else numbers[row]
            one = self._read(number, name, match, text, start)
            if one.rank is None and frame_ends is not ends:
                if row not in ranks:
                    ranks[row] = _rank_of_line(chunk, start)
                one.rank = ranks[row]
            self._ranks.add(one.rank)
            self.rows.add(one)
            latest[one.rank] = row
        self._keep_latest(piece, first_line, latest, numbers)
        return {first_line + row if numbers is None else numbers[row] for row in rows}

    def _take(
        self, piece: Piece, first_line: int, known: Laid, numbers: Sequence[int] | None
    ) -> Sequence[int]:
        """Take the numbers of lines whose layouts are known, and return on which lines they stand."""
        lines = [first_line + row if numbers is None else numbers[row] for row in known.rows]
        columns = Columns(array("q", lines), known.forms, known.which, known.values)
        self.rows.take(columns)
        latest = dict(zip(columns.column("rank"), known.rows, strict=True))
        self._seen.update(known.forms[which] for which in set(known.which))
        self._ranks.update(latest)
        self._keep_latest(piece, first_line, latest, numbers)
        return lines

    def _keep_latest(
        self,
        piece: Piece,
        first_line: int,
        rows: dict[int | None, int],
        numbers: Sequence[int] | None,
    ) -> None:
        """Keep the last step line of each rank word for word."""
        of_row = {row: rank for rank, row in rows.items()}
        pairs = [
            (row, first_line + row if numbers is None else numbers[row]) for row in sorted(of_row)
        ]
        for row, number, raw in piece.with_lines(pairs):
            rank = of_row[row]
            known = rank in self._latest
            if (known and self._latest[rank][0] < number) or (
                not known and len(self._latest) < _MOST_LATEST
            ):
                self._latest[rank] = number, raw[:_LONGEST_LATEST]

    def tells(self, least: int) -> bool:
        """Tell whether lines of a known form, bars and evaluations aside, tell so many different steps.

        A form that reads the same step on every line has taken another number for it.
        """
        seen: set[tuple[str, int | None, int]] = set()
        for row in self.rows.unread():
            if row.form not in WEAK_FORMS:
                seen.add((row.form, row.rank, row.line if row.step is None else row.step))
                if len(seen) >= least:
                    return True
        return False

    def bare(self) -> list[int]:
        """Return the numbers of the lines of known forms, bars aside, where none of them tells a loss or a gradient norm."""
        found = []
        for row in self.rows.unread():
            if row.form not in WEAK_FORMS:
                if row.loss is not None or row.grad_norm is not None or row.step is None:
                    return []
                found.append(row.line)
        return sorted(set(found))

    def untimed(self) -> list[int]:
        """Return the numbers of the lines of known forms, bars aside, where none of them tells a time or a rate."""
        found = []
        for row in self.rows.unread():
            if row.form not in WEAK_FORMS:
                if row.step_time is not None or row.throughput is not None:
                    return []
                found.append(row.line)
        return sorted(set(found))

    def find_times(self, piece: Piece, may_name_a_loss: Callable[[bytes], bool]) -> None:
        """Look for a time on the step lines of the first piece, if no form reads one, and read it from then on."""
        from rerail.log_parsers.line_times import learn_times

        numbers = self.untimed()
        lines = piece.lines() if numbers else []
        shown = [lines[number - 1] for number in numbers if number <= len(lines)]
        self._times = learn_times(shown, may_name_a_loss) if shown else None
        self.fill_times(piece, 1)

    def fill_times(self, piece: Piece, first_line: int, since: tuple[int, int] = (0, 0)) -> None:
        """Give the step rows of a piece the times on their lines, from some part of the rows and place in it on."""
        if self._times is None:
            return
        from rerail.log_parsers.line_times import fill

        told = self._times.of(piece, first_line)
        for at, part in enumerate(self.rows.parts()[since[0] :]):
            fill(part, told, 0 if at else since[1])
        self.rows.changed()

    def latest_lines(self) -> list[tuple[int, bytes]]:
        """Return (number, line) of the last step line of each rank."""
        return sorted(self._latest.values())

    def _read(
        self, line: int, form: str, match: re.Match[bytes], text: bytes, start: int
    ) -> StepRow:
        numbers = self._layouts.read(form, text)
        if numbers is not None:
            return StepRow(line, form, *numbers)
        alike = None
        if len(text) <= _LONGEST_ALIKE and self._layouts.settled(form):
            alike = form, text.translate(ZERO)
        places = self._alike.get(alike) if alike is not None else None
        if places is not None:
            return row_alike(line, form, match, text, places)
        row, spans = read_row(line, form, match, text, start)
        if form in WEAK_FORMS or row.form != form:
            return row
        if alike is not None:
            if len(self._alike) >= _MOST_ALIKE:
                self._alike.clear()
            self._alike[alike] = spans
        self._layouts.learn(form, text, spans, lasts=has_layout(form, text, spans))
        return row


@lru_cache(maxsize=1)
def _presence() -> Presence:
    return Presence([form.pattern for form in forms()])


@lru_cache(maxsize=1)
def _all_forms() -> int:
    """Return one bit for each form, by its place."""
    return (1 << len(forms())) - 1


@lru_cache(maxsize=1)
def _blind_forms() -> int:
    """Return one bit for each form, by its place, that cannot tell one digit from another."""
    return sum(
        1 << at
        for at, form in enumerate(forms())
        if digit_blind(bytes(form.pattern.pattern).decode())
    )


_of_thread = threading.local()


def _barren() -> BarrenLines:
    """Return the lines in which this thread found none of the forms."""
    held: BarrenLines = _of_thread.__dict__.setdefault("barren", BarrenLines())
    return held


def _latest_of(parts: Sequence[Columns | list[StepRow]]) -> dict[int | None, int]:
    """Return the line of the last row of each rank, by the order in which the rows came."""
    latest: dict[int | None, int] = {}
    for part in parts:
        if isinstance(part, Columns):
            latest.update(zip(part.column("rank"), part.lines, strict=True))
        else:
            latest.update((row.rank, row.line) for row in part)
    return latest


def _some_lines(text: bytes, rows: Sequence[int]) -> bytes:
    """Return some lines of a text; the last one lacks its end where it lacks it there."""
    lines = text.split(b"\n")
    ended = rows[-1] < len(lines) - 1
    return b"\n".join(lines[row] for row in rows) + (b"\n" if ended else b"")


def _occurring(piece: Piece, places: Sequence[int]) -> Sequence[int]:
    """Return the forms that may occur in a piece of which the skeletons are not known, of those of these places."""
    asked = len(places) > _FEW_FORMS
    present = _presence().places(piece.text) if asked else None
    if present is None:
        return places
    wanted = {forms()[place].pattern for place in present}
    return [place for place in places if forms()[place].pattern in wanted]


def _kept_frames(rows: Sequence[int], *, all_frames: bool) -> list[int]:
    """Return which step frames to read, given the row of each.

    Where real step lines are printed as well, a bar shows how far it is: its last frame counts. A
    log of nothing but bars is read in full, up to so many frames of a line.
    """
    kept: list[int] = []
    for _, run in groupby(range(len(rows)), rows.__getitem__):
        places = list(run)
        stride = -(-len(places) // _FRAMES_OF_LINE) if all_frames else len(places)
        kept += reversed(places[::-1][::stride])
    return kept


def _rank_of_line(chunk: bytes, start: int) -> int | None:
    """Return the rank in the label of a line; only the first of its frames has it."""
    at = chunk.rfind(b"\n", 0, start) + 1
    return labelled(chunk[at : at + 80])[0]


def _stands_behind(guard: re.Pattern[bytes], chunk: bytes, at: int) -> bool:
    return guard.search(chunk[max(0, at - _LOOK_BACK) : at]) is not None


def _is_followed(chunk: bytes, at: int, by: Followed) -> bool:
    stop = chunk.find(b"\n", at, at + _AHEAD)
    ahead = chunk[at : at + _AHEAD if stop < 0 else stop]
    return any(word in ahead for word in by.words) and by.form.search(ahead) is not None
