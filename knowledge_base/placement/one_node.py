"""Ranks of a job on one node, where a device's or a child's number is the rank."""

from __future__ import annotations

from collections.abc import Sequence

from rerail.domain.evidence import LogLine
from rerail.knowledge_base.placement.identities import Identities
from rerail.log_parsers.host_names import is_local
from rerail.log_parsers.prefixes import DEVICE

GPUS_OF_A_NODE = 8
"""More ranks than this are on several nodes, unless the launcher says how many it starts on one (DGX and HGX manuals)."""


def device_in_front(line: LogLine) -> int | None:
    """Return the number of the device that labels a line (`[GPU 2]`), or None."""
    return line.local_rank if f"/{DEVICE}" in f"/{line.label}" else None


def local_that_is_rank(identities: Identities, line: LogLine) -> int | None:
    """Return the local rank in front of a line, unless the line of a local rank names another rank; or None."""
    told, local = identities.ranks_of_locals, line.local_rank
    alike = all(ranks == {number} for number, ranks in told.items())
    return local if line.rank is None and alike else None


def one_node(identities: Identities, local: int) -> bool:
    """Tell whether nothing in the logs speaks against a job on one node."""
    ranks = [
        *identities.ranks_seen,
        *identities.ranks_heard,
        (identities.world_size or 1) - 1,
        local,
    ]
    alone = len(identities.nodes_at_work) <= 1 and (identities.node_count or 1) == 1
    alone = alone and not identities.told_of_several
    most = identities.per_node or identities.most_per_node or GPUS_OF_A_NODE
    return alone and max(ranks) < most


def node_around(identities: Identities, ranks: Sequence[int]) -> str | None:
    """Return the only node of a job, where it is known that these ranks run there, or None.

    It is where the launcher says that there is one node, where ranks on both sides of them do, or where nothing
    speaks of ranks.
    """
    if len(identities.nodes_at_work) != 1 or not ranks or not one_node(identities, max(ranks)):
        return None
    (node,) = identities.nodes_at_work
    there = [rank for rank, where in identities.node_of_rank.items() if where == node]
    enclosed = bool(there) and min(there) <= min(ranks) and max(ranks) <= max(there)
    numbered = identities.ranks_seen or identities.ranks_heard or (identities.world_size or 1) > 1
    return node if identities.node_count == 1 or enclosed or not numbered else None


def node_of_all_ranks(identities: Identities) -> str | None:
    """Return the one host at work where the job is known to have started all its ranks on one node, or None."""
    if identities.told_of_several or len(identities.nodes_at_work) != 1:
        return None
    (node,) = identities.nodes_at_work
    all_there = identities.per_node is not None and identities.per_node == identities.world_size
    return node if all_there and not is_local(node) else None
