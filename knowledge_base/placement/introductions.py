"""Which writer is which rank, where several of a kind introduce themselves by nothing but their ranks.

A log without labels of ranks often begins with a line of each process, `rank 2 up`, behind whatever tells processes
apart: a host, a pod, a process id, a file. One such line proves nothing, for a log speaks of ranks of all kinds; that
several writers say the same of themselves, each of another rank, and that the ranks are all there are, does.
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
    for one in statements:
        rank = one.number("rank")
        if "introduction" in one.form.tells and rank is not None and one.line.rank in (None, rank):
            writer = writer_of(case, one.line)
            told[writer[-1] > 0][writer].setdefault(rank, one)
    return {
        writer: Introduced(rank, one.line)
        for by_writer in told.values()
        if _numbered(by_writer)
        for writer, ranks in by_writer.items()
        for rank, one in ranks.items()
    }


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
