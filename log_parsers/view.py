"""The kept lines of one surveyed file, parsed on demand."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import replace

from rerail.domain.evidence import LogLine
from rerail.log_parsers.frames import drawn_over, written_by
from rerail.log_parsers.opening import lies_at
from rerail.log_parsers.prefixes import Origin, parse_line
from rerail.log_parsers.records_of_lines import rank_of_record
from rerail.log_parsers.sections import Sections, sections
from rerail.log_parsers.survey import FileSurvey
from rerail.log_parsers.text import clean
from rerail.log_parsers.timestamps import WALL, Stamp, find_stamp

_NEAR = 3_000  # lines


class LogView:
    """Lines of one file by number; a line that was not kept is None."""

    def __init__(
        self,
        survey: FileSurvey,
        index: int,
        *,
        year: int,
        origin: Origin | None = None,
        originals: Mapping[int, bytes] | None = None,
    ) -> None:
        """`originals` are the lines as they stand in the file, where those of the survey are behind a shared front."""
        self.survey = survey
        self.index = index
        self.year = year
        self.origin = origin or survey.source.origin
        self.originals = originals or {}
        self.numbers = sorted(survey.kept)
        self._texts: dict[int, str] = {}
        self._lines: dict[int, LogLine] = {}
        self._stamps: dict[int, Stamp | None] = {}
        self._sections: Sections | None = None

    @property
    def name(self) -> str:
        """How the file is called in reports."""
        return self.survey.source.name

    def names(self) -> set[str]:
        """Return how the file is called, and the parts of a rotated log."""
        return {self.name, *(part.source.name for part in self.survey.parts)}

    def text(self, number: int) -> str | None:
        """Return the cleaned text of a line; the reader masked its secrets, or None where it was not kept."""
        found = self._texts.get(number)
        if found is None:
            raw = self.survey.kept.get(number)
            if raw is None:
                return None
            found = self._texts[number] = clean(raw)
        return found

    def line(self, number: int) -> LogLine | None:
        """Return a line with its origin and time, or None where it was not kept."""
        found = self._lines.get(number)
        if found is None:
            text = self.text(number)
            if text is None:
                return None
            found = self._parsed(number, text)
            if drawn_over(self.survey.kept[number]):
                found = written_by(
                    found, self.survey.kept[number], lambda frame: self._parsed(number, frame)
                )
            if number in self.originals:
                found = self._behind_front(found, clean(self.originals[number]))
            if self.survey.parts:
                found = replace(found, stands=lies_at(self.survey.parts, number))
            if not found.label:
                rank = rank_of_record(found.message, number, self.text)
                found = found if rank is None else replace(found, rank=rank)
            self._lines[number] = found
        return found

    def _parsed(self, number: int, text: str) -> LogLine:
        return parse_line(self.name, number, text, origin=self._origin(number), year=self.year)

    def _behind_front(self, line: LogLine, whole: str) -> LogLine:
        """Return a line with what stands in front of it in its file, whose time is its own where it tells none."""
        front = whole.removesuffix(line.text)
        stamp = find_stamp(whole, year=self.year) if line.time is None else None
        if stamp is None:
            return replace(line, front=front)
        return replace(line, front=front, time=stamp.seconds, clock=stamp.clock)

    def wall_time(self, number: int) -> float | None:
        """Return the wall-clock time that a line tells; None where it tells none, or was not kept."""
        stamp = self._stamp(number)
        return stamp.seconds if stamp is not None and stamp.clock == WALL else None

    def tells_time(self, number: int) -> bool:
        """Tell whether a line tells a time of any clock, without a look at its labels."""
        return self._stamp(number) is not None

    def _stamp(self, number: int) -> Stamp | None:
        if number not in self._stamps:
            text = self.text(number)
            stamp = None if text is None else find_stamp(text, year=self.year)
            if stamp is None and number in self.originals:
                stamp = find_stamp(clean(self.originals[number]), year=self.year)
            self._stamps[number] = stamp
        return self._stamps[number]

    def section(self, number: int) -> int:
        """Return the number of the heading that a line stands under; 0 above the first, or where there is none."""
        return bisect_right(self._headings().starts, number)

    def headings(self) -> tuple[int, ...]:
        """Return the numbers of the lines that begin the log of another host or file."""
        return self._headings().starts

    def _origin(self, number: int) -> Origin:
        """Return where a line was written, as the heading of its section or else its file tells."""
        return self._headings().origin(number, self.origin)

    def _headings(self) -> Sections:
        if self._sections is None:
            kept = self.survey.kept
            self._sections = sections(((one, kept[one]) for one in self.numbers), clean)
        return self._sections

    def between(self, first: int, last: int) -> Iterator[int]:
        """Yield the numbers of kept lines from `first` to `last`, both included."""
        yield from self.numbers[bisect_left(self.numbers, first) : bisect_right(self.numbers, last)]

    def at_ends(self, first: int, last: int) -> list[int]:
        """Return the numbers of the first and last kept lines, or of all where there are no more than these."""
        if len(self.numbers) <= first + last:
            return self.numbers
        return [*self.numbers[:first], *self.numbers[-last:]]

    def time_near(self, number: int, reach: int = 400) -> float | None:
        """Return the wall-clock time of a line, or of the nearest stamped line above it.

        Of a long file only some lines are kept: one that stands far above tells another time.
        """
        start = bisect_right(self.numbers, number) - 1
        section = self.section(number)
        for position in range(start, max(-1, start - reach), -1):
            above = self.numbers[position]
            if number - above > _NEAR or (section and self.section(above) != section):
                return None
            time = self.wall_time(above)
            if time is not None:
                return time
        return None
