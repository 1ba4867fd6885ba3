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
from rerail.lazy_patterns import lazy

_ALL_LINES, _LEAST_LINES = 20_000, 100  # of all files, of each: the last before the first time-out
_BEFORE_S = 60.0
"""What holds a rank up is often said shortly before the others arrive."""
_LONGEST_WAIT_S = 1_800.0
_LEAST_WAITING, _MOST = 2, 2 / 3
_VARIES = lazy(r"\d+")
_WORDS = 120  # characters of a line that make its wording


def still_speaking(case: Case, identities: Identities, waiting: Waiting) -> Finding | None:
    """Return the one rank that spoke while the others waited, with what it said; None where there is no such rank."""
    found, report = waiting.found, waiting.line
    if report is None or (found is None and not _most_gave_up(case, waiting)):
        return None
    first = waiting.first.line if waiting.first is not None else report
    spoken = [
        (rank, line)
        for line in _sentences(case, first)
        if (rank := _rank_of(case, identities, line)) is not None
    ]
    speakers: dict[str, set[int]] = defaultdict(set)
    for rank, line in spoken:
        speakers[_wording(line)].add(rank)
    ended = _last_words_of_waiting(waiting, spoken)
    said: dict[int, list[LogLine]] = defaultdict(list)
    for rank, line in spoken:
        alone = len(speakers[_wording(line)]) == 1
        waits = rank in waiting.victims and not (found is not None and rank in found.ranks)
        if alone and not waits and _in_the_wait(case, waiting, line, ended):
            said[rank].append(line)
    heard = [rank for rank in said if found is None or rank in found.ranks]
    # The first rank prints for all of them.
    if len(heard) != 1 or (found is None and heard == [0]):
        return None
    rank = heard[0]
    lines = sorted(said[rank], key=lambda one: _when(case, one))
    line = next((one for one in lines if warns(one)), lines[0])
    words = f"rank {rank} still printed lines of its own when the others had begun to wait"
    return Finding(How.SPOKE, (rank,), words, line)


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


def _last_words_of_waiting(waiting: Waiting, spoken: list[tuple[int, LogLine]]) -> dict[str, int]:
    """Return by file the last line that one of those says who wait later on."""
    last: dict[str, int] = {}
    for rank, line in spoken:
        if rank in waiting.victims:
            last[line.file] = max(last.get(line.file, 0), line.number)
    return last


def _in_the_wait(case: Case, waiting: Waiting, line: LogLine, ended: dict[str, int]) -> bool:
    """Tell by its clock, or else by its place in the file of the time-outs, that a line was written in the wait.

    Where others only name who is missing, and not since when, it must be a warning above that.
    """
    if waiting.first is None:
        report = waiting.line
        return report is not None and warns(line) and _shortly_above(case, line, report)
    first, time = waiting.first.line, case.time(line)
    if time is not None and waiting.started is not None:
        return time >= waiting.started - _BEFORE_S
    if (
        not case.one_stretch(line, first)
        or not ended.get(line.file, 0) < line.number < first.number
    ):
        return False
    # What stands at the top of a file is a greeting.
    below = any(row.line < line.number for row in case.view(line).survey.steps)
    return below or line.file in ended or warns(line)


def _shortly_above(case: Case, line: LogLine, report: LogLine) -> bool:
    """Tell whether a line was written before a report, in its file or not long before it."""
    if case.one_stretch(line, report):
        return line.number < report.number
    time, told = case.time(line), case.near_time(report)
    return time is not None and told is not None and 0 < told - time < _LONGEST_WAIT_S


def warns(line: LogLine) -> bool:
    """Tell whether a line calls itself a warning or an error."""
    return phrase("says-warning").search(line.text) is not None
