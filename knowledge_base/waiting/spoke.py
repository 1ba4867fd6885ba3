"""Who still spoke in words of its own while the others waited in a collective.

A process prints nothing of its own while it sits in a collective. Where all that gave up waiting were silent before
and one rank that did not give up said something that no other rank says, the others waited for that one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from rerail.domain.evidence import LogLine, Role, Stream
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.phrases import phrase
from rerail.knowledge_base.placement.identities import Identities
from rerail.knowledge_base.placement.introductions import writer_of
from rerail.knowledge_base.waiting.engine import Finding, How, Waiting
from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy

_ALL_LINES, _LEAST_LINES = 20_000, 25  # of all files, of each: the last before the first time-out
_BEFORE_S = 60.0
"""What holds a rank up is often said shortly before the others arrive."""
_LONGEST_WAIT_S = 1_800.0
_LEAST_WAITING, _MOST = (
    2,
    2 / 3,
)  # of those that are known to have given up, and their part of all that were heard
_VARIES = lazy(r"\d+")
_WORDS = 120  # characters of a line that make its wording


def still_speaking(case: Case, identities: Identities, waiting: Waiting) -> Finding | None:
    """Return the one rank that spoke while the others waited, with what it said; None where there is no such rank.

    What others say comes first: where they name ranks, it is the only one that they name, and no host that was lost.
    """
    found, report = waiting.found, waiting.line
    if report is None or not _may_have_spoken(case, waiting):
        return None
    first = waiting.first.line if waiting.first is not None else report
    spoken = [
        (rank, line)
        for line in _sentences(case, first)
        if (rank := _rank_of(case, identities, line)) is not None
    ]
    wordings = [_wording(line) for _, line in spoken]
    speakers: dict[str, set[int]] = defaultdict(set)
    for (rank, _), wording in zip(spoken, wordings, strict=True):
        speakers[wording].add(rank)
    silent = _Silence.of(case, waiting, spoken)
    said: dict[int, list[LogLine]] = defaultdict(list)
    for (rank, line), wording in zip(spoken, wordings, strict=True):
        waits = rank in waiting.victims and not (found is not None and rank in found.ranks)
        if len(speakers[wording]) == 1 and not waits and silent.holds(case, waiting, line):
            said[rank].append(line)
    heard = [rank for rank in said if found is None or rank in found.ranks]
    # The first rank prints for all of them, as does the only one that prints steps.
    if len(heard) != 1 or (found is None and heard[0] in {0, *_only_one_with_steps(case)}):
        return None
    rank = heard[0]
    if case.unread_of([rank]):
        return None  # it may say there that it waits as well
    lines = sorted(said[rank], key=lambda one: _when(case, one))
    line = next((one for one in lines if warns(one)), lines[0])
    words = f"rank {rank} still said something of its own when the others had begun to wait, or just before"
    return Finding(How.SPOKE, (rank,), words, line)


def _may_have_spoken(case: Case, waiting: Waiting) -> bool:
    if case.missing_shards or any(one.lost_node or one.gone for one in waiting.findings):
        return False
    if waiting.by(How.STOOD_STILL) is not None:
        return False
    found = waiting.found
    return _most_gave_up(case, waiting) if found is None else len(found.ranks) == 1


def _only_one_with_steps(case: Case) -> set[int]:
    ranks = {row.rank for view in case.views for row in view.survey.steps}
    return {rank for rank in ranks if rank is not None} if len(ranks) == 1 else set()


def _most_gave_up(case: Case, waiting: Waiting) -> bool:
    """Tell whether several gave up waiting, and most that the log knows: a launcher ends the others before they say so."""
    others = len(case.facts.ranks_heard() | waiting.victims) - 1
    return len(waiting.victims) >= max(_LEAST_WAITING, _MOST * others)


def _rank_of(case: Case, identities: Identities, line: LogLine) -> int | None:
    """Return the rank that prints a line, by its label, its process or where it alone runs."""
    rank = identities.rank_of(line)
    if rank is None and (introduced := identities.introduced.get(writer_of(case, line))):
        rank = introduced.rank
    if rank is None and (host := identities.host(line.node or line.place or "")):
        ranks = identities.ranks_on(host)
        rank = ranks[0] if len(ranks) == 1 and (identities.per_node or 1) == 1 else None
    return rank


def _sentences(case: Case, first: LogLine) -> Iterator[LogLine]:
    """Yield what is said of their own accord before the first time-out, as far as the order is known."""
    # What elsewhere means nothing, a retry for example, may be what held a rank up.
    told = {
        (o.line.file, o.line.number)
        for o in case.observations
        if o.role is Role.CASCADE or "waited" in o.marks
    }
    gave_up, each = case.near_time(first), max(_LEAST_LINES, _ALL_LINES // len(case.views))
    for view in case.views:
        steps = {row.line for row in view.survey.steps}
        numbers = [number for number in view.numbers if number not in steps]
        if view.name == first.file:
            numbers = [number for number in numbers if number < first.number]
        for number in numbers[-each:]:
            line = view.line(number)
            if line is None or line.stream is not Stream.TRAIN:
                continue
            time = case.time(line)
            late = time is not None and gave_up is not None and time >= gave_up
            if not late and (line.file, number) not in told and _is_sentence(line):
                yield line


def _is_sentence(line: LogLine) -> bool:
    """Tell whether a line is more than a part of a traceback or a table."""
    return (
        line.message[:1] not in (" ", "\t", "")
        and phrase("traceback-begins").search(line.message) is None
    )


def _when(case: Case, line: LogLine) -> tuple[float, str, int]:
    time = case.near_time(line)
    return (time if time is not None else float("inf"), line.file, line.number)


def _wording(line: LogLine) -> str:
    return _VARIES.sub("0", line.message[: 4 * _WORDS])[:_WORDS]


@dataclass(frozen=True, slots=True)
class _Silence:
    """Since when those that waited were silent: by file the last line of one of them, and its time of all."""

    lines: dict[str, int]
    time: float

    @classmethod
    def of(cls, case: Case, waiting: Waiting, spoken: list[tuple[int, LogLine]]) -> _Silence:
        lines: dict[str, int] = {}
        time = float("-inf")
        for rank, line in spoken:
            if rank in waiting.victims:
                lines[line.file] = max(lines.get(line.file, 0), line.number)
                time = max(time, case.time(line) or time)
        return cls(lines, time)

    def holds(self, case: Case, waiting: Waiting, line: LogLine) -> bool:
        """Tell by its clock, or else by its place in the file of the time-outs, that a line was written in it.

        Shortly before the wait, and where others only name who is missing and not since when, it must be a warning.
        """
        if waiting.first is None:
            report = waiting.line
            return report is not None and warns(line) and _shortly_above(case, line, report)
        first, time = waiting.first.line, case.time(line)
        if time is not None and waiting.started is not None:
            if time >= waiting.started:
                return time > self.time
            return time >= waiting.started - _BEFORE_S and warns(line)
        above = self.lines.get(line.file, 0) < line.number < first.number
        if not above or not case.one_stretch(line, first):
            return False
        steps = case.view(line).survey.steps
        if any(row.loss is not None and line.number < row.line < first.number for row in steps):
            return False  # a step ended behind it, for which all had come
        # What stands at the top of a file is a greeting.
        begun = bool(steps) and steps[0].line < line.number
        return begun or line.file in self.lines or warns(line)


def _shortly_above(case: Case, line: LogLine, report: LogLine) -> bool:
    """Tell whether a line was written before a report, in its file or not long before it."""
    time, told = case.near_time(line), case.near_time(report)
    if time is not None and told is not None and told - time >= 0.5:
        return told - time < _LONGEST_WAIT_S
    return case.one_stretch(line, report) and line.number < report.number


def warns(line: LogLine) -> bool:
    """Tell whether a line calls itself a warning or an error."""
    return phrase("says-warning").search(line.text) is not None
