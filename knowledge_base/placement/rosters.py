"""Which rank, host and process id belong together, where a job prints a line, or a part of one, for each of its processes.

Such lines differ from program to program and are alike within one: the same words, and in the same places a rank, a
host, a process id. One of them proves little; that the others say the same of the other ranks, each once and on hosts
that no other line contradicts, does. Ranges of ranks and the numbers of nodes are told in the same way.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise

from rerail.domain.evidence import LogLine
from rerail.knowledge_base.placement.names import short
from rerail.knowledge_base.placement.processes import Identity, pid_in_front
from rerail.knowledge_base.placement.roster_lines import Entry, Part, entries, parts_told, told_at
from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy
from rerail.log_parsers.host_names import is_address, looks_like_host, series_of
from rerail.log_parsers.text import ZERO
from rerail.log_parsers.view import LogView

_HEAD, _TAIL = 2_000, 200  # lines of a file that are read: processes say it where a job starts
_LONGEST, _FRONT = 2_000, 80
_PID_IN_FRONT = lazy(rb"^[^A-Za-z]*?[\s\[(]\d{2,8}[\s\])]|pid|^[IWEF]\d{4} ")
_OFTEN = 8  # times that a process is heard in one wording


@dataclass(frozen=True, slots=True)
class Row:
    """One process of a roster, the ranks that its host holds or the number of its node, and the line that tells it."""

    who: Identity
    ranks: range
    node_rank: int | None
    line: LogLine


def rosters(
    views: Iterable[LogView], known: frozenset[str], world: int | None, ranks: frozenset[int]
) -> list[list[Row]]:
    """Return what a job's lines tell of rank and host or process id, those of one wording together.

    Args:
        views: the files of the job.
        known: hosts that other lines name.
        world: how many ranks the job has, or None.
        ranks: those that are heard of.
    """
    tables: dict[tuple[str, ...], list[Entry]] = defaultdict(list)
    for entry in _entries(views, known):
        tables[entry.part.about].append(entry)
    told = (_rows(_with_pids(reads), known, world, ranks) for reads in tables.values())
    return [rows for rows in told if rows]


def _entries(views: Iterable[LogView], known: frozenset[str]) -> Iterator[Entry]:
    """Yield what the lines of a job tell of its processes; of lines that differ in other numbers alone a few are read."""
    out: set[bytes] = set()
    seen: Counter[tuple[bytes, bytes]] = Counter()
    for view in views:
        kept = view.survey.kept
        for number in view.at_ends(_HEAD, _TAIL):
            raw = kept[number]
            if len(raw) > _LONGEST or (zeroed := raw.translate(ZERO)) in out:
                continue
            told = told_at(raw)
            if told is None:
                out.add(zeroed)  # what is looked for cannot tell one digit from another
                continue
            if seen[zeroed, told] >= _OFTEN:
                continue
            seen[zeroed, told] += 1
            read = parts_told(view.text(number) or "", known)
            # Of a rank alone only the process id in front of its line tells more.
            alone = _PID_IN_FRONT.search(raw[:_FRONT]) is not None
            read = [one for one in read if one.host or one.pid is not None or alone]
            if not read:
                out.add(zeroed)
            elif (line := view.line(number)) is not None:
                yield from entries(read, line)


def _with_pids(reads: list[Entry]) -> list[Entry]:
    """Add the process ids in front of the lines, where each rank has one of its own: no process tells of others."""
    ranks: dict[int | None, set[int]] = defaultdict(set)
    for one in reads:
        ranks[pid_in_front(one.line)].add(one.part.first)
    if None in ranks or any(len(held) > 1 for held in ranks.values()):
        return reads
    return [
        one if one.part.pid else Entry(replace(one.part, pid=pid_in_front(one.line)), one.line)
        for one in reads
    ]


def _rows(
    reads: list[Entry], known: frozenset[str], world: int | None, ranks: frozenset[int]
) -> list[Row]:
    """Return the rows of a table; none where it tells one of two places, or is no table."""
    by_first: dict[int, Entry] = {}
    for entry in reads:
        one = entry.part
        first = by_first.setdefault(one.first, entry).part
        if (short(first.host or ""), first.pid, first.last) != (
            short(one.host or ""),
            one.pid,
            one.last,
        ):
            return []  # lines about events, or another attempt of the job
    chosen = [by_first[first] for first in sorted(by_first)]
    told = [entry.part for entry in chosen]
    whole = told[0].first == 0 and all(a.last + 1 == b.first for a, b in pairwise(told))
    seats = [one.local for one in told if one.local is not None]
    # A process id may come back on another host: one of each local rank is on one.
    one_host = whole or len(set(seats)) == len(seats)
    pids = one_host and any(one.pid is not None for one in told)
    if len(told) < 2 or not (pids or any(one.host is not None for one in told)):
        return []
    believed = (
        _numbers_nodes(told, whole)
        if told[0].of == "node"
        else _ranks_told(told, whole, world, ranks)
    )
    if not believed or not _are_hosts(told, known, whole):
        return []
    return [_row(entry.part, entry.line) for entry in chosen]


def _ranks_told(told: list[Part], whole: bool, world: int | None, ranks: frozenset[int]) -> bool:
    """Tell whether the numbers are the job's ranks: by their name, or since they are as many as the job has."""
    last = told[-1].last
    if (world is not None and last >= world) or any(a.last >= b.first for a, b in pairwise(told)):
        return False
    if any(one.of == "range" for one in told):
        sizes = {one.last - one.first for one in told}
        return whole and len(sizes) == 1 and len({one.host for one in told}) == len(told)
    return all(one.sure for one in told) or (
        whole and world in (None, last + 1) and max(ranks, default=0) <= last
    )


def _numbers_nodes(told: list[Part], whole: bool) -> bool:
    """Tell whether hosts are numbered: each has one number, from 0 on where the word counts other things as well."""
    return (whole or all(one.sure for one in told)) and len({one.host for one in told}) == len(told)


def _row(one: Part, line: LogLine) -> Row:
    held = range(one.first, one.last + 1)
    if one.of == "node":
        return Row(Identity(node=one.host), range(0), one.first, line)
    if len(held) > 1:
        return Row(Identity(node=one.host), held, None, line)
    who = Identity(rank=one.first, node=one.host, pid=one.pid, local_rank=one.local, gpu=one.gpu)
    return Row(who, held, None, line)


def _are_hosts(reads: list[Part], known: frozenset[str], whole: bool) -> bool:
    """Tell whether what stands beside the ranks are their hosts."""
    hosts = {one.host for one in reads if one.host is not None}
    apart = len(hosts) > 1
    strange = any(one.strange for one in reads)
    if not hosts or (hosts <= known and (apart or not strange)):
        return True
    if all(one.named == "host" for one in reads):
        return not strange or all(map(looks_like_host, hosts))
    alike = len({series_of(host) for host in hosts}) == 1 or all(map(is_address, hosts))
    if all(one.named for one in reads):
        return apart and whole and not strange
    return apart and whole and alike and not strange
