"""Which rank sits at which local rank of a host, by the numbers that processes call themselves in lines of a collective.

Such a number counts within a group of processes, and is the rank only where the group is the whole job. That it is shows
where launchers number the ranks of each host one block after the other and all numbers fit into such blocks.
"""

from __future__ import annotations

from rerail.domain.evidence import LogLine
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.placement.identities import Identities
from rerail.knowledge_base.placement.names import short
from rerail.knowledge_base.placement.processes import Identity
from rerail.log_parsers.front_parts import number_in_group

_SEVERAL = 2


def learn_numbers(case: Case, found: Identities) -> None:
    """Take the numbers that processes call themselves, behind labels of host and local rank, for their ranks if they fit."""
    told: dict[tuple[str, int], tuple[int, LogLine]] = {}
    for observation in case.observations:
        line = observation.line
        if line.rank is not None or line.local_rank is None or line.node is None:
            continue
        said = number_in_group().search(line.message)
        if said is None:
            continue
        number, seat = int(said[1]), (short(line.node), line.local_rank)
        if told.setdefault(seat, (number, line))[0] != number:
            return  # it has another number in another group
    numbers = {seat: number for seat, (number, _) in told.items()}
    size = 1 + max((local for _, local in numbers), default=0)
    if not _in_blocks(numbers, size):
        return
    blocks = {number - local: line for (_, local), (number, line) in told.items()}
    for first, line in blocks.items():
        # The rank that says nothing sits in one of the blocks as well.
        for local in range(size):
            found.learn(Identity(rank=first + local, node=line.node, local_rank=local), line)


def _in_blocks(numbers: dict[tuple[str, int], int], size: int) -> bool:
    """Tell whether the numbers of several hosts are blocks of one size, in each of which they follow the local ranks."""
    blocks = {(host, number // size) for (host, _), number in numbers.items()}
    hosts, firsts = {host for host, _ in blocks}, {block for _, block in blocks}
    return len(blocks) == len(hosts) == len(firsts) >= _SEVERAL and all(
        number % size == local for (_, local), number in numbers.items()
    )
