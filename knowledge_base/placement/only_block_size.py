"""How many ranks each host holds, where those that are known of several hosts fit into blocks of one size alone.

Launchers give each host a block of consecutive ranks, one for each of its GPUs. Ranks 1, 2 and 6 on one host and 8, 9
and 15 on another lie in blocks of their own for no size of a host but eight.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from rerail.knowledge_base.placement.identities import Identities

_SIZES = (2, 4, 6, 8, 12, 16)
"""How many GPUs, or tiles that count as such, the hosts of training clusters have."""
_LEAST_HOSTS, _LEAST_RANKS = 2, 2
"""So many hosts of which so many ranks are known."""


def learn_blocks(found: Identities) -> None:
    """Give each host of which ranks are known its block, where only one size of the blocks fits."""
    if found.conflicts or any(len(held) > 1 for held in found.ranks_at.values()):
        return
    ranks_of: defaultdict[str, list[int]] = defaultdict(list)
    borne_out = found.tasks_are_ranks and not found.rank_of_task and found.ranks_seen
    tasks = found.node_of_task if borne_out else {}
    known = tasks | found.node_of_rank
    for rank in sorted(known):
        ranks_of[known[rank]].append(rank)
    size = _only_size(ranks_of.values(), found.world_size)
    if size is None or found.per_node not in (None, size):
        return
    for host, ranks in ranks_of.items():
        first = ranks[0] // size * size
        block = range(first, min(first + size, found.world_size or first + size))
        found.ranks_at.setdefault(host, tuple(block))
        told = found.told_by.get(("rank", ranks[0])) or found.told_by.get(("task", ranks[0]))
        for rank in block:
            if told is not None and rank not in found.node_of_rank:
                found.keep(found.node_of_rank, "rank", rank, host, told)


def may_sit_at(rank: int, local: int) -> bool:
    """Tell whether a rank has a local rank for any size of the blocks."""
    return any(rank % size == local for size in _SIZES)


def _only_size(hosts: Collection[list[int]], world: int | None) -> int | None:
    """Return the one size of a host that fits to all, and to the number of ranks where it is known; or None."""
    if sum(len(ranks) >= _LEAST_RANKS for ranks in hosts) < _LEAST_HOSTS:
        return None
    sizes = [size for size in _SIZES if (world or size) % size == 0 and _fits(hosts, size)]
    return sizes[0] if len(sizes) == 1 else None


def _fits(hosts: Collection[list[int]], size: int) -> bool:
    """Tell whether the ranks of each host lie in one block of this size, and no two hosts share one."""
    blocks = [{rank // size for rank in ranks} for ranks in hosts]
    return all(len(each) == 1 for each in blocks) and len(set().union(*blocks)) == len(blocks)
