"""Where a rank ran of which no line tells: on the host whose ranks are all around it, where each has a block of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

_LEAST_WHOLE = 3  # hosts of which all ranks are known
_MOST_HOLES = 0.5  # of the hosts, those of which a rank is not known


def free_seats(known: Mapping[int, str]) -> dict[int, str]:
    """Return the hosts of ranks that are not known, given those of the others.

    Launchers give each host a block of consecutive ranks, all of one size. That shows in the hosts that are known: none
    has a rank of another's block, and most have their whole block. Then who is missing within a block is on its host.
    No rank above the highest that is known: there may be none.
    """
    ranks_of: defaultdict[str, set[int]] = defaultdict(set)
    for rank, host in known.items():
        ranks_of[host].add(rank)
    size = max(map(len, ranks_of.values()), default=0)
    whole = sum(len(ranks) == size for ranks in ranks_of.values())
    if size < 2 or whole < max(_LEAST_WHOLE, (1 - _MOST_HOLES) * len(ranks_of)):
        return {}
    blocks = {host: {rank // size for rank in ranks} for host, ranks in ranks_of.items()}
    taken = [block for each in blocks.values() for block in each]
    if any(len(each) != 1 for each in blocks.values()) or len(set(taken)) != len(taken):
        return {}
    top, found = max(known), {}
    for host, (block,) in blocks.items():
        for rank in range(block * size, min((block + 1) * size, top)):
            if rank not in known:
                found[rank] = host
    return found
