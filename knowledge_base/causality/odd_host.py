"""A device that one process asks for and does not find, where processes at the same place of other hosts have theirs.

All hosts of a job are started alike: who asks for a device that no host has fails on every host. Where one process alone
does, and others with its local rank run, its host lacks what the others have.
"""

from __future__ import annotations

from collections.abc import Sequence

from rerail.domain.evidence import Observation
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.causality.exits import ExitFact
from rerail.knowledge_base.placement.identities import Identities
from rerail.knowledge_base.rules import Rule


def leaf_of_odd_host(
    case: Case,
    rule: Rule | None,
    winner: Observation,
    known: Identities,
    exits: Sequence[ExitFact],
    rank: int | None,
) -> str | None:
    """Return the leaf that the rule has for a host that alone lacks something, or None where it need not be the only one."""
    if rule is None or rule.odd_host is None or rank is None:
        return None
    told = {known.rank_of(one.line) for one in case.observations if one.rule_id == winner.rule_id}
    host = known.node_of_rank.get(rank)
    place = known.ranks_at.get(host or "", ())
    if told - {None} != {rank} or rank not in place:
        return None
    local = place.index(rank)
    heard = known.ranks_seen | known.ranks_heard
    stopped = {f.node for f in exits if f.how == "ordered"} - {host}
    others = {at: held[local] for at, held in known.ranks_at.items() if local < len(held)}
    run = {at for at, same in others.items() if at != host and (same in heard or at in stopped)}
    return rule.odd_host if run else None
