"""Blocks of consecutive ranks, one for each host: how large they are, and whom that puts on which host.

Launchers give each host a block of ranks, one for each of its GPUs, or deal the ranks out in turn. That it is blocks shows
in the ranks that are known: those of each host lie in one block, and no two hosts share one. How large a block is, a
launcher tells, the number of hosts does, most hosts show whose ranks are all known, or no other size fits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from rerail.knowledge_base.placement.identities import Identities
from rerail.knowledge_base.placement.identity_statements import MOST_TASKS
from rerail.knowledge_base.placement.one_node import GPUS_OF_A_NODE

_SIZES = (2, 4, 6, 8, 12, 16)
"""How many GPUs, or tiles that count as such, the hosts of training clusters have."""
_LEAST_HOSTS, _LEAST_RANKS = 2, 2
"""So many hosts of which so many ranks are known show a size that alone fits."""
_LEAST_WHOLE = 3  # hosts of which all ranks are known
_MOST_HOLES = 0.5  # of the hosts, those of which a rank is not known
_FEWEST_FIRSTS = 3
"""So many hosts whose first ranks alone are known: of two, the one between them may be silent."""


def fill_blocks(found: Identities, each: int | None = None) -> None:
    """Give a rank of which nothing says where it ran the host in whose block it is, where the size of a block is told.

    The size is `each`, or the hosts that are known are all of the job. One block must be known as a whole, or, where a
    launcher tells how large it is, two ranks that would be dealt to one host are on two.
    """
    world, known = found.world_size, found.node_of_rank
    hosts = set(known.values())
    size = each or (world // len(hosts) if world and hosts and world % len(hosts) == 0 else 0)
    if each and any(len(ranks) != each for ranks in found.ranks_at.values()):
        return
    if size < 2 or len(hosts) < 2 or (world or 0) > MOST_TASKS or (world or 0) % size:
        return
    host_of = _hosts_of_blocks(_by_host(known), size)
    if host_of is None:
        return
    # The first rank of each host, as programs print it, of as many hosts as there are blocks.
    firsts = (
        _FEWEST_FIRSTS <= len(hosts) == (world or 0) // size
        and size <= GPUS_OF_A_NODE
        and sorted(known) == [block * size for block in range(len(hosts))]
    )
    whole = any(all(rank in known for rank in _ranks(block, size)) for block in host_of)
    told = each or firsts
    if not whole and (not told or _may_be_dealt(known, world // size if world else len(hosts))):
        return
    for block, host in host_of.items():
        _seat(found, host, _ranks(block, size), known)


def learn_blocks(found: Identities) -> None:
    """Give each host of which ranks are known its block, where only one size of the blocks fits.

    Ranks 1, 2 and 6 on one host and 8, 9 and 15 on another lie in blocks of their own for no size but eight.
    """
    if found.conflicts or any(len(held) > 1 for held in found.ranks_at.values()):
        return
    borne_out = found.tasks_are_ranks and not found.rank_of_task and found.ranks_seen
    known = (found.node_of_task if borne_out else {}) | found.node_of_rank
    ranks_of = _by_host(known)
    size = _only_size(ranks_of, found.world_size)
    if size is None or found.per_node not in (None, size):
        return
    for host, ranks in ranks_of.items():
        first = min(ranks) // size * size
        block = range(first, min(first + size, found.world_size or first + size))
        _seat(found, host, block, ranks)


def free_seats(known: Mapping[int, str]) -> dict[int, str]:
    """Return the hosts of ranks that are not known, given those of the others, where most hosts have their whole block.

    No rank above the highest that is known: there may be none.
    """
    ranks_of = _by_host(known)
    size = max(map(len, ranks_of.values()), default=0)
    whole = sum(len(ranks) == size for ranks in ranks_of.values())
    if size < 2 or whole < max(_LEAST_WHOLE, (1 - _MOST_HOLES) * len(ranks_of)):
        return {}
    top, host_of = max(known), _hosts_of_blocks(ranks_of, size) or {}
    return {
        rank: host
        for block, host in host_of.items()
        for rank in _ranks(block, size)
        if rank < top and rank not in known
    }


def may_sit_at(rank: int, local: int) -> bool:
    """Tell whether a rank has a local rank for any size of the blocks."""
    return any(rank % size == local for size in _SIZES)


def _by_host(known: Mapping[int, str]) -> dict[str, set[int]]:
    ranks_of: defaultdict[str, set[int]] = defaultdict(set)
    for rank in sorted(known):
        ranks_of[known[rank]].add(rank)
    return ranks_of


def _ranks(block: int, size: int) -> range:
    return range(block * size, (block + 1) * size)


def _hosts_of_blocks(ranks_of: Mapping[str, Collection[int]], size: int) -> dict[int, str] | None:
    """Return the host of each block, or None where the ranks of a host lie in several blocks, or two hosts share one."""
    host_of: dict[int, str] = {}
    for host, ranks in ranks_of.items():
        blocks = {rank // size for rank in ranks}
        if len(blocks) != 1 or not blocks.isdisjoint(host_of):
            return None
        host_of[blocks.pop()] = host
    return host_of


def _only_size(ranks_of: Mapping[str, Collection[int]], world: int | None) -> int | None:
    """Return the one size of a host that fits to all, and to the number of ranks where it is known; or None."""
    if sum(len(ranks) >= _LEAST_RANKS for ranks in ranks_of.values()) < _LEAST_HOSTS:
        return None
    sizes = [
        size for size in _SIZES if (world or size) % size == 0 and _hosts_of_blocks(ranks_of, size)
    ]
    return sizes[0] if len(sizes) == 1 else None


def _may_be_dealt(known: Mapping[int, str], hosts: int) -> bool:
    """Tell whether ranks that are known may have been dealt out to so many hosts in turn."""
    dealt: dict[int, str] = {}
    return not any(
        dealt.setdefault(rank % hosts, host) != host or known.get(rank + 1) == host
        for rank, host in known.items()
    )


def _seat(found: Identities, host: str, block: range, near: Collection[int]) -> None:
    """Give a host its block of ranks, by the line of the first of those nearby that has one."""
    known = found.node_of_rank
    found.ranks_at.setdefault(host, tuple(block))
    first = next(rank for rank in block if rank in near)
    told = found.told_by.get(("rank", first)) or found.told_by.get(("task", first))
    for rank in block:
        if told is not None and rank not in known:
            found.keep(known, "rank", rank, host, told)
