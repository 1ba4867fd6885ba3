"""When a fault is nobody's: several ranks or hosts have the very same."""

from __future__ import annotations

from rerail.domain.evidence import Blames, LogLine
from rerail.knowledge_base.placement.headings import named_above
from rerail.knowledge_base.placement.names import short
from rerail.knowledge_base.placement.one_node import GPUS_OF_A_NODE, one_node
from rerail.knowledge_base.placement.own_loss import is_own_loss
from rerail.knowledge_base.placement.place import Asked
from rerail.knowledge_base.taxonomy import has, leaves

EVERYWHERE = 3
"""A fault of one kind on this many ranks, or hosts, is nobody's in particular."""
_AT_ONCE_S = 60.0
_MOST_HEADED = 64  # lines of one fault whose headings are looked up


def everywhere(asked: Asked) -> bool:
    """Tell whether a fault is nobody's: several ranks have the same, and it is of no host where they are on several."""
    leaf, found = asked.event.leaf, asked.place
    if has(leaf, "noticed_by_either"):
        return False  # all others tell of the one
    if has(asked.event.leaf, "of_the_job") and is_own_loss(asked.case, asked.line):
        return False  # the others got theirs from it
    same = _alike(asked)
    ranks = ranks_alike(asked)
    if found.pci or not (
        _either_may_be_first(asked, ranks)
        or (len(ranks) >= EVERYWHERE and found.rank in ranks)
        or _on_every_host(asked, same)
        or _on_hosts_at_once(asked)
    ):
        return False
    told = [asked.identities.node_of(line) for line in same]
    told += [fact.node for fact in asked.exits if fact.rank in ranks]
    hosts = {short(asked.identities.host(host)) for host in told if host is not None}
    if _of_one_of_several_hosts(asked, ranks, hosts):
        return False
    found.reasons = [why for why in found.reasons if why.what != f"rank {found.rank}"]
    found.rank, found.everywhere = None, sorted(ranks)
    if len(hosts) > 1:
        found.node = None
    return True


def _of_one_of_several_hosts(asked: Asked, ranks: set[int], hosts: set[str]) -> bool:
    """Name all ranks of a fault that only one host of the job had: the line that is told is that of the first."""
    known, found = asked.identities, asked.place
    placed = (known.node_of_rank.get(rank) for rank in ranks)
    there = hosts | {short(known.host(host)) for host in placed if host is not None}
    told = [*known.nodes_seen, *known.node_of_rank.values(), *known.node_of_task.values()]
    told += [fact.node for fact in asked.exits if fact.node is not None]
    if len(there) != 1 or not {short(known.host(one)) for one in told} - there:
        return False
    if max(ranks) - min(ranks) >= (known.per_node or known.most_per_node or GPUS_OF_A_NODE):
        return False  # a file of one host may hold what all ranks print
    leaf, held = leaves().get(asked.event.leaf or ""), set(known.ranks_on(found.node or ""))
    below = (
        leaf is not None and leaf.layer == "infrastructure" and not has(leaf.id, "of_one_process")
    )
    if below and held and held <= ranks:
        return False  # every rank there has it of the host
    found.together = sorted(ranks)
    return True


def _either_may_be_first(asked: Asked, ranks: set[int]) -> bool:
    """Tell whether another rank says the same in another file, and neither a clock nor an exit tells which was first."""
    case, event, rank = asked.case, asked.event, asked.place.rank
    if len(ranks) < 2 or rank not in ranks or event.blames not in (Blames.SPEAKER, Blames.PEER):
        return False
    if next((fact.rank for fact in asked.exits if fact.rank in ranks), None) == rank:
        return False  # it ended first
    return any(
        other.rule_id == event.rule_id
        and other.line.file != asked.line.file
        and asked.identities.rank_of(other.line) in ranks - {rank}
        and case.near_time(other.line) is None
        and case.near_time(asked.line) is None
        for other in asked.selection.candidates
    )


def ranks_alike(asked: Asked) -> set[int]:
    """Return the ranks that have the very same fault: by their labels, or by the headings that one prints for all."""
    alike = _alike(asked)
    told = {asked.identities.rank_of(line) for line in alike}
    own = asked.line
    if own.rank is None and not own.label and one_node(asked.identities, own.local_rank or 0):
        # The files of local ranks, which on one node are ranks.
        told |= {line.local_rank for line in alike if line.rank is None and not line.label}
    if len(alike) >= EVERYWHERE and named_above(asked.case, asked.line, "rank") is not None:
        headings = (named_above(asked.case, line, "rank") for line in alike[:_MOST_HEADED])
        told |= {found.number("rank") for found in headings if found is not None}
    return {rank for rank in told if rank is not None}


def _alike(asked: Asked) -> list[LogLine]:
    # Those that complain of the other end have not what this one has, nor has an exception that nothing more is known of.
    event = asked.event
    return [
        c.line
        for c in asked.selection.candidates
        if (c.leaf, c.blames, c.tier) == (event.leaf, event.blames, event.tier)
    ]


def _on_hosts_at_once(asked: Asked) -> bool:
    """Tell whether several hosts tell the very same of themselves at once: it is of what they share."""
    event, known = asked.event, asked.identities
    if event.fields.get("node") or event.blames not in (Blames.SPEAKER, Blames.HOST):
        return False
    hosts = {
        known.host(one.line.node)
        for one in asked.selection.candidates
        if one.rule_id == event.rule_id
        and one.line.node
        and abs(asked.case.seconds_between(event, one) or 0.0) <= _AT_ONCE_S
    }
    return len(hosts) >= EVERYWHERE


def _on_every_host(asked: Asked, same: list[LogLine]) -> bool:
    """Tell whether every host, or pod, that the logs know raises the very same: what the job was given is wrong."""
    if not asked.event.lines or not has(asked.event.leaf, "given_to_all"):
        return False
    known = asked.identities
    hosts = {
        known.node_of(line) or line.place for line in same if line.message == asked.line.message
    }
    return len(hosts - {None}) > 1 and asked.identities.nodes_seen <= hosts
