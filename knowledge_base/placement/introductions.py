"""Which writer is which rank, where several of a kind introduce themselves by nothing but their ranks.

A log without labels of ranks often begins with a line of each process, `rank 2 up`, behind whatever tells processes
apart: a host, a pod, a process id, a file. One such line proves nothing, for a log speaks of ranks of all kinds; that
several writers say the same of themselves, each of another rank, and that the ranks are all there are, does. Some
programs say it of nobody else (`own_rank`): one such writer beside another is enough, and one alone where it is not
the first rank, which prints for all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from rerail.domain.evidence import LogLine
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.statements import Statement
from rerail.late_dataclass import dataclass

Writer = tuple[str, int, str, str, int]
"""Who writes a line, by what is told of it: file, section, host, pod or container, process id."""


@dataclass(frozen=True, slots=True)
class Introduced:
    """The rank of a writer, and the line on which it says so."""

    rank: int
    line: LogLine


def writer_of(case: Case, line: LogLine) -> Writer:
    """Return who writes a line."""
    section = case.view(line).section(line.number)
    return line.file, section, line.node or "", line.place or "", line.pid or 0


def introductions(case: Case, statements: Iterable[Statement]) -> dict[Writer, Introduced]:
    """Return the ranks by which writers introduce themselves."""
    told: dict[bool, dict[Writer, dict[int, Statement]]] = defaultdict(lambda: defaultdict(dict))
    own: dict[Writer, dict[int, Statement]] = defaultdict(dict)
    named: dict[Writer, set[int]] = defaultdict(set)
    for one in statements:
        rank = one.number("rank")
        if rank is None or one.line.rank not in (None, rank):
            continue
        writer = writer_of(case, one.line)
        named[writer].add(rank)
        if "introduction" in one.form.tells:
            told[writer[-1] > 0][writer].setdefault(rank, one)
        if "own_rank" in one.form.tells:
            own[writer].setdefault(rank, one)
    return _by_their_own_word(case, own, named) | {
        writer: Introduced(rank, one.line)
        for by_writer in told.values()
        if _numbered(by_writer)
        for writer, ranks in by_writer.items()
        for rank, one in ranks.items()
    }


def _by_their_own_word(
    case: Case, own: dict[Writer, dict[int, Statement]], named: dict[Writer, set[int]]
) -> dict[Writer, Introduced]:
    """Return the writers that say which rank they are, in words that no process says of another."""
    told = {
        writer: Introduced(rank, one.line)
        for writer, ranks in own.items()
        if named[writer] == ranks.keys() and len(ranks) == 1
        for rank, one in ranks.items()
    }
    several = len(told) > 1 and len({one.rank for one in told.values()}) == len(told)
    if several:
        return told
    whole = len(own) == 1 and not case.says("lines-left-out")
    return {writer: one for writer, one in told.items() if whole and one.rank}


def _numbered(by_writer: dict[Writer, dict[int, Statement]]) -> bool:
    """Tell whether each of several writers has one rank of its own, and the ranks are those of processes.

    They are where each writer is known by its process id, where they are 0 to the last without a gap, or where they
    are half of as many, or more, as the lines say that there are.
    """
    ranks = [rank for told in by_writer.values() for rank in told]
    if len(by_writer) < 2 or len(ranks) != len(by_writer) or len(set(ranks)) < len(ranks):
        return False
    if all(pid for *_, pid in by_writer) or set(ranks) == set(range(len(ranks))):
        return True
    sizes = {one.number("world") for told in by_writer.values() for one in told.values()} - {None}
    world = sizes.pop() if len(sizes) == 1 else None
    return world is not None and max(ranks) < world <= 2 * len(ranks)
