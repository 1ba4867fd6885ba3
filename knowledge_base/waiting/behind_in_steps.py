"""Who came to fewer steps than all others and gave up in an earlier collective than they: for those the others wait.

Where a rank that is behind gives up waiting as the others do, nobody is absent and no status line is needed to tell
them apart: the last step of each rank is known exactly, whatever lines were kept, and each says in which collective of
its group it sat. One of the two alone is not enough: what a rank prints may lie in a buffer, and the numbers of
collectives are those of groups which lines of older releases do not name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from rerail.knowledge_base.case import Case
from rerail.knowledge_base.causality.left_behind import LeftBehind, behind_in_last_steps
from rerail.knowledge_base.waiting.engine import Finding, How, Waiting

_LEAST_STEPS = 2
"""Ranks that wait for each other may be seen a step apart."""


def behind_in_steps(case: Case, waiting: Waiting) -> Finding | None:
    """Return the few whose last step and whose collective are before those of all others, or None."""
    late = None if waiting.first is None else behind_in_last_steps(case, waiting.first.line)
    if late is None or late.rounds is None or late.rounds[1] - late.rounds[0] < _LEAST_STEPS:
        return None
    if not _gave_up_earlier(waiting, late):
        return None
    return Finding(How.BEHIND, late.ranks, late.why, late.line)


def _gave_up_earlier(waiting: Waiting, late: LeftBehind) -> bool:
    """Tell whether each of these ranks waited in a group in a collective before the one of all others of the group."""
    awaited: dict[str | None, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for one in waiting.positions:
        if one.seq is not None and one.rank is not None:
            awaited[one.group][one.rank].add(one.seq)
    earlier = {
        rank
        for of_rank in awaited.values()
        for rank in late.ranks
        if rank in of_rank and _before_all(of_rank, rank, late.ranks)
    }
    return earlier == set(late.ranks)


def _before_all(of_rank: dict[int, set[int]], rank: int, late: Collection[int]) -> bool:
    others = [seq for other, told in of_rank.items() if other not in late for seq in told]
    return len(of_rank.keys() - set(late)) > 1 and max(of_rank[rank]) < min(others)
