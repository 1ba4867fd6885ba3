"""The parts of a rotated log are one stream: they are read one behind the other, and their lines counted through.

So a verdict on `train.log.1` and `train.log` is that on the joined file. Each line knows where it stands; once the
verdict is made, everything is told by the files as they lie there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from operator import attrgetter
from typing import TypeVar

from rerail.domain.evidence import LogLine
from rerail.log_parsers.binary_content import looks_binary
from rerail.log_parsers.facts import Facts
from rerail.log_parsers.find_lines import pieces
from rerail.log_parsers.flight_recorder.recognise import looks_like_flight_recorder
from rerail.log_parsers.line_marks import LineMarks
from rerail.log_parsers.opening import is_damage, is_packed, open_source
from rerail.log_parsers.parts_of_one import Ends, are_one_log
from rerail.log_parsers.skeletons import SkeletonMiner
from rerail.log_parsers.sources import RotatedName, Source, rotated_parts
from rerail.log_parsers.split_names import cut_at_lines, cut_inside_lines, split_logs
from rerail.log_parsers.step_numbers import StepRow
from rerail.log_parsers.survey import FileSurvey, Hit
from rerail.log_parsers.view import LogView

_LOOK = 1 << 16
_Row = TypeVar("_Row", Hit, StepRow)


def joined(
    sources: Sequence[Source], ends_of: Callable[[Source], Ends | None] | None = None
) -> list[Source]:
    """Return the sources with the parts of each rotated log as one, which is called as its newest part is.

    `ends_of` returns the ends of a file, or None for one that is read by itself: no text, or not to be opened.
    """
    rotated = rotated_parts([source.name for source in sources])
    ends_of = ends_of or _ends_of
    of_part = _split(sources, ends_of)
    if not rotated and not of_part:
        return list(sources)
    logs: dict[object, list[Source]] = defaultdict(list)
    for source in sources:
        if source.name in rotated and source.name not in of_part:
            logs[rotated[source.name].log].append(source)
    for parts in logs.values():
        parts.sort(key=lambda one: (rotated[one.name].age, one.name))
        one = _one_log(parts, rotated, ends_of)
        of_part |= {part.name: one for part in one.parts}
    kept = [of_part.get(one.name, one) for one in sources]
    return list({id(one): one for one in kept}.values())


def _split(
    sources: Sequence[Source], ends_of: Callable[[Source], Ends | None]
) -> dict[str, Source]:
    """Return by its name the log of each piece that `split` cut."""
    found: dict[str, Source] = {}
    for parts in split_logs(sources):
        told = [(number, ends_of(part)) for number, part in enumerate(parts)]
        ends = [(number, one) for number, one in told if one is not None]
        text = len(ends) == len(parts)
        goes_on = text and cut_at_lines(parts) and are_one_log(ends, as_ranks=True)
        if text and (goes_on or cut_inside_lines(parts)):
            # `node00` and `node01` are called as hosts are.
            nodes = {part.origin.node for part in parts}
            origin = replace(
                parts[-1].origin, rank=None, local_rank=None, place=None, attempt=None,
                node=nodes.pop() if len(nodes) == 1 else None,
            )  # fmt: skip
            size = sum(part.size for part in parts)
            one = replace(parts[-1], parts=tuple(parts), size=size, origin=origin)
            found |= {part.name: one for part in parts}
    return found


def _one_log(
    parts: Sequence[Source],
    rotated: Mapping[str, RotatedName],
    ends_of: Callable[[Source], Ends | None],
) -> Source:
    """Return the parts as one source, or a source without parts where they are no parts of one log."""
    looked = [(part, ends) for part in parts if (ends := ends_of(part)) is not None]
    newest = parts[-1]
    if len(looked) < 2 or len({part.name for part, _ in looked}) < len(looked):
        return newest
    names = [rotated[part.name] for part in parts]
    as_ranks = not any(name.live for name in names) and any(name.number == 0 for name in names)
    told = [(rotated[part.name].number, ends) for part, ends in looked]
    if not are_one_log(told, as_ranks=as_ranks):
        return newest
    read = tuple(part for part, _ in looked)
    return replace(read[-1], parts=read, size=sum(part.size for part in read))


def ends_of_bytes(data: bytes) -> Ends | None:
    """Return the ends of what is held in memory, or None where it is no text."""
    first = data[:_LOOK]
    return None if not first or looks_binary(first) else Ends(first, data[-_LOOK:])


def _ends_of(source: Source) -> Ends | None:
    if source.path is None or not source.path.is_file():
        return None
    try:
        with open_source(source) as stream:
            first = stream.read(_LOOK)
        if not first or looks_binary(first) or looks_like_flight_recorder(first, source.name):
            return None
        with source.path.open("rb") as raw:
            if is_packed(raw.read(6)):
                return Ends(first)
            raw.seek(max(0, source.size - _LOOK))
            return Ends(first, raw.read(_LOOK))
    except Exception as error:
        if not is_damage(error):
            raise
        return None  # it is told of where the file is read by itself


class PartView(LogView):
    """One part of a rotated log as it lies there, its lines as the whole log tells them."""

    def __init__(self, whole: LogView, survey: FileSurvey, index: int, above: int) -> None:
        """`above` are the lines of the whole log in front of this part."""
        originals = {
            n - above: raw for n, raw in whole.originals.items() if n - above in survey.kept
        }
        super().__init__(survey, index, year=whole.year, origin=whole.origin, originals=originals)
        self._whole, self._above = whole, above

    def line(self, number: int) -> LogLine | None:
        """Return a line with its origin and time, or None where it was not kept."""
        if number not in self.survey.kept:
            return None
        line = self._whole.line(number + self._above)
        return None if line is None else as_it_lies(line)

    def time_near(self, number: int, reach: int = 400) -> float | None:
        """Return the time of a line, or of the nearest stamped line above it, also in an older part."""
        return self._whole.time_near(number + self._above, reach)


def as_it_lies(line: LogLine) -> LogLine:
    """Return a line by the file in which it stands."""
    if line.stands is None:
        return line
    file, number = line.stands
    return replace(line, file=file, number=number, stands=None)


def apart(views: Sequence[LogView]) -> list[LogView]:
    """Return the files as they lie there: the parts of each rotated log by themselves."""
    found: list[LogView] = []
    for view in views:
        if view.survey.parts:
            for survey, above in _parts_of(view.survey):
                if survey.kept:
                    found.append(PartView(view, survey, len(found), above))
        else:
            moved = copy(view)
            moved.index = len(found)
            found.append(moved)
    return found


def _parts_of(whole: FileSurvey) -> Iterator[tuple[FileSurvey, int]]:
    numbers = sorted(whole.kept)
    for at, part in enumerate(whole.parts):
        newest = at + 1 == len(whole.parts)
        end = whole.lines + 1 if newest else max(part.first, whole.parts[at + 1].first)
        above, wanted = part.above, range(part.first, end)
        own = numbers[bisect_left(numbers, wanted.start) : bisect_left(numbers, wanted.stop)]
        kept = {n - above: whole.kept[n] for n in own}
        yield (
            FileSurvey(
                replace(part.source, origin=whole.source.origin),
                lines=max(0, end - 1 - above),
                size=part.size,
                whole=whole.whole,
                kept=kept,
                hits=[Hit(h.line - above, h.signature) for h in _within(whole.hits, wanted)],
                counts=whole.counts if newest else {},
                steps=[replace(r, line=r.line - above) for r in _within(whole.steps, wanted)],
                last_nonempty=max((n for n, raw in kept.items() if raw.strip()), default=0),
                ends_with_newline=whole.ends_with_newline if newest else part.ends,
                miner=_mined(part.source) if whole.miner is not None and not whole.whole else None,
                facts=whole.facts if newest else Facts(),
                marks=LineMarks(),
                counted=[replace(r, line=r.line - above) for r in _within(whole.counted, wanted)],
            ),
            above,
        )


def _within(rows: Sequence[_Row], lines: range) -> Sequence[_Row]:
    """Return the rows of some lines; rows are in the order of their lines."""
    start, stop = (
        bisect_left(rows, edge, key=attrgetter("line")) for edge in (lines.start, lines.stop)
    )
    return rows[start:stop]


def _mined(part: Source) -> SkeletonMiner:
    """Count the templates of a part of a large log: the whole log's do not tell which part shows them."""
    miner = SkeletonMiner()
    try:
        for number, raw in pieces(part):
            miner.feed(raw, number)
    except Exception as error:
        if not is_damage(error):
            raise
        return miner  # what stopped the reading was told when the log was read
    return miner
