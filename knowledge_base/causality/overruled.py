"""What speaks against a fault or an exit that would otherwise be the first one: whom all others waited for tells more."""

from __future__ import annotations

from collections.abc import Sequence

from rerail.domain.evidence import Blames, LogLine, Observation
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.causality.exits import ExitFact
from rerail.knowledge_base.placement.identities import Identities, rivals
from rerail.knowledge_base.taxonomy import has
from rerail.knowledge_base.waiting.engine import How, Waiting

BY_A_SIGNAL = frozenset({"crashed", "killed"})
"""How processes end that did not end by themselves, nor because NCCL gave up."""


def later(case: Case, a: LogLine, b: LogLine) -> bool:
    """Tell whether `a` is known to have been written after `b`."""
    if a.file == b.file:
        return a.number > b.number
    time_a, time_b = case.near_time(a), case.near_time(b)
    return time_a is not None and time_b is not None and time_a > time_b


def others_miss_another(waiting: Waiting | None, known: Identities, winner: Observation) -> bool:
    """Tell whether a process was only slow, and all others waited in vain for another one."""
    named = waiting.by(How.NAMED) if waiting is not None else None
    if named is None or len(named.ranks) != 1 or not has(winner.leaf, "slow"):
        return False
    line = winner.line
    if line.rank is not None:
        return line.rank != named.ranks[0]
    where, own = known.node_of_rank.get(named.ranks[0]), known.node_of(line)
    return where is not None and own is not None and rivals(known.host(own), where)


def killed_by_its_monitor(case: Case, found: Waiting, odd: ExitFact) -> bool:
    """Tell whether a process was killed behind the line of the monitor that does so where a process does not move."""
    named = found.by(How.NAMED)
    if named is None or named.line is None or not named.kills or len(named.ranks) > 1:
        return False  # who waits sends no sign to its monitor either
    mine = odd.how == "killed" and odd.rank in (None, *named.ranks)
    return mine and later(case, odd.line, named.line)


def killed_before(case: Case, exits: Sequence[ExitFact], winner: Observation) -> bool:
    """Tell whether a process of another node was killed or crashed before this rank lost its connection."""
    if winner.leaf is None or winner.blames is not Blames.PEER:
        return False
    return any(
        f.how in BY_A_SIGNAL
        and f.node is not None
        and f.node != winner.line.node
        and later(case, winner.line, f.line)
        for f in exits
    )
