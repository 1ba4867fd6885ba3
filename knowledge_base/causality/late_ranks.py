"""Which rank always comes late to what all ranks of a step say.

Ranks print the same message of each step within milliseconds. One that prints it seconds after all others, step after
step, is what they wait for, though its own line tells no time. It must have been in time with something: a clock that
is ahead makes all of a host's lines late. The first rank has work of its own (evaluations, checkpoints, logs) and is never
meant.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise

from rerail.domain.evidence import LogLine
from rerail.knowledge_base.case import Case
from rerail.late_dataclass import dataclass
from rerail.log_parsers.step_numbers import StepRow
from rerail.log_parsers.text import without_digits

_MOST_LINES = 2_000
_LEAST_RANKS, _LEAST_ROUNDS = 3, 2
_LATE_S, _APART = 10.0, 10.0
"""How many seconds, and how many times as far as the others are apart, the last comes behind the last but one."""

_SLOWER, _EVEN, _DONE = 1.5, 1.25, 0.8
"""How much slower than all others a rank is that falls behind in its own work, how far those are apart at most, and which
share of their work it has done at most."""


@dataclass(frozen=True, slots=True)
class LateRank:
    """The rank that comes late, by how much at least, and its line in the first round in which it does."""

    rank: int
    late_s: float
    line: LogLine

    def describe(self) -> str:
        """Say it in one clause."""
        return (
            f"rank {self.rank} comes {self.late_s:.4g} s and more after all others, step after step"
        )


@dataclass(frozen=True, slots=True)
class SlowPace:
    """The rank that is far behind in its own share of the work, and how far all others are at least."""

    rank: int
    step: int
    others: int
    pace_s: float
    others_s: float
    line: LogLine

    def describe(self) -> str:
        """Say it in one clause."""
        return (
            f"rank {self.rank} is at {self.step} and takes {self.pace_s:.4g} s each,"
            f" all others are at {self.others} and more and take {self.others_s:.4g} s at most"
        )


def late_rank(case: Case) -> LateRank | None:
    """Return the one rank that comes late in all rounds of some message, or None."""
    rounds: dict[str, list[LateRank | None]] = defaultdict(list)
    in_time: set[int] = set()
    for message, said in _said(case).items():
        if len(said) >= _LEAST_RANKS:
            last = _last(said)
            rounds[without_digits(message)].append(last)
            in_time |= said.keys() - ({last.rank} if last is not None else set())
    found: dict[int, LateRank] = {}
    for each in rounds.values():
        late = [one for one in each if one is not None]
        ranks = {one.rank for one in late}
        # The first round may lie before it became slow.
        meant = len(ranks) == 1 and 0 not in ranks and ranks <= in_time
        if len(late) >= max(_LEAST_ROUNDS, len(each) - 1) and meant:
            first = min(late, key=lambda one: (one.line.time or 0.0, one.line.number))
            least = LateRank(first.rank, min(one.late_s for one in late), first.line)
            found.setdefault(first.rank, least)
    return next(iter(found.values())) if len(found) == 1 else None


def far_behind(case: Case) -> SlowPace | None:
    """Return the one rank whose own counter of work stands far below all others', at a pace far below theirs, or None.

    In a synchronous job all count alike; where each rank does a share of its own, the last row of each tells.
    """
    last: dict[int, tuple[int, float, LogLine]] = {}
    for view in case.views:
        for row in _that_may_be_last(view.survey.steps[-_MOST_LINES:]):
            line = view.line(row.line) if row.step and row.step_time else None
            rank = line.rank if line is not None else None
            if line is not None and rank is not None and row.step and row.step_time:
                last[rank] = (row.step, row.step_time, line)
    if len(last) <= _LEAST_RANKS:
        return None
    slow = max(last, key=lambda rank: last[rank][1])
    step, pace, line = last[slow]
    steps, paces, _ = zip(*(one for rank, one in last.items() if rank != slow), strict=True)
    alike = max(paces) <= _EVEN * min(paces)
    if not slow or not alike or pace < _SLOWER * max(paces) or step > _DONE * min(steps):
        return None
    if case.unread_of([slow]):
        return None
    return SlowPace(slow, step, min(steps), pace, max(paces), line)


def _that_may_be_last(rows: Sequence[StepRow]) -> Sequence[StepRow]:
    """Return the rows that may be the last of a rank: where the counter only goes up, one rank prints it."""
    counted = [row.step for row in rows if row.step]
    rises = all(before < after for before, after in pairwise(counted))
    return rows[-1:] if rises and rows and rows[-1].step and rows[-1].step_time else rows


def _said(case: Case) -> dict[str, dict[int, tuple[float, LogLine]]]:
    """Return by message, numbers included, when each rank printed it; what one prints twice is left out."""
    said: dict[str, dict[int, tuple[float, LogLine]]] = defaultdict(dict)
    twice: set[str] = set()
    hosts: set[str | None] = set()
    counted_on_hosts = False
    for view in case.views:
        for number in view.numbers[:_MOST_LINES]:
            line = view.line(number) if view.tells_time(number) else None
            if line is None or line.time is None:
                continue
            # The time of a day without its date is good enough within one file.
            own = case.time(line)
            time = line.time if own is None else own
            rank = line.rank if line.rank is not None else line.local_rank
            if rank is None:
                continue
            hosts.add(line.node or line.place)
            counted_on_hosts = counted_on_hosts or line.rank is None
            message = line.message.strip()
            if rank in said[message]:
                twice.add(message)
            said[message][rank] = (time, line)
    if counted_on_hosts and len(hosts) > 1:
        return {}  # a local rank is one rank on each host
    return {message: ranks for message, ranks in said.items() if message not in twice}


def _last(said: Mapping[int, tuple[float, LogLine]]) -> LateRank | None:
    order = sorted(said, key=lambda rank: said[rank][0])
    times = [said[rank][0] for rank in order]
    late, spread = times[-1] - times[-2], times[-2] - times[0]
    if late < max(_LATE_S, _APART * spread):
        return None
    return LateRank(order[-1], late, said[order[-1]][1])
