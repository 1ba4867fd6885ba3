"""Which rank sits at which local rank of a host or replica, as launchers list it."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from itertools import pairwise

from rerail.domain.evidence import LogLine
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.phrases import phrase, says
from rerail.knowledge_base.placement.identities import Identities
from rerail.knowledge_base.placement.names import short
from rerail.knowledge_base.placement.one_node import GPUS_OF_A_NODE
from rerail.log_parsers.host_names import is_local

_SEVERAL, _HOSTS = 2, 3


def rank_at(identities: Identities, line: LogLine) -> int | None:
    """Return the rank of the process that wrote a line, by its front or by the GPU that it names, or None."""
    place = line.node or line.place or _of_one_host(identities, line)
    local = line.local_rank
    ranks = identities.seats(place, line) if place or local is not None else ()
    if local is None and (place in identities.gpus_in_order or ranks):
        local = gpu_of_its_own(line.text)
    if local is None and ranks:
        local = device_of_nccl(line)
    if local is None and len(ranks) == 1 and not line.label:
        return ranks[0]
    if local is not None and local < len(ranks):
        return ranks[local]
    seat = None if local is None else identities.rank_of_seat.get((short(place or ""), local))
    return _only_one_with_the_device(identities, place, line) if seat is None else seat


def _only_one_with_the_device(
    identities: Identities, place: str | None, line: LogLine
) -> int | None:
    """Return the only rank that is known of a host, where the device that a line of NCCL names there is its own.

    Launchers give each host a block of ranks, one for each of its devices.
    """
    device, there = number_of_device(line), identities.ranks_on(place) if place else []
    size = identities.per_node or GPUS_OF_A_NODE
    return there[0] if device and len(there) == 1 and there[0] % size == device else None


def ranks_of_a_host(identities: Identities) -> int:
    """Return how many ranks each host holds: as told, or as the first ranks of several hosts are apart; else 0."""
    firsts = [rank for (_, at), rank in identities.rank_of_seat.items() if at == 0]
    return identities.per_node or math.gcd(*firsts) or _apart(identities)


def _apart(identities: Identities) -> int:
    """Return how far apart the ranks are of three or more hosts of each of which one rank is known, from 0 on; else 0."""
    hosts = Counter(map(short, identities.node_of_rank.values()))
    ranks = sorted(identities.node_of_rank)
    if len(hosts) < _HOSTS or max(hosts.values()) > 1 or ranks[0] != 0:
        return 0
    gaps = {after - before for before, after in pairwise(ranks)}
    return gaps.pop() if len(gaps) == 1 else 0


def rank_in_block(identities: Identities, node: str | None, local: int) -> int | None:
    """Return the rank at a local rank of a host, where a launcher numbers the hosts' ranks one block after the other.

    That it does shows in a rank whose number within such blocks is its local rank; of the first block it may be chance.
    """
    seats, size = identities.rank_of_seat, ranks_of_a_host(identities)
    begins = {rank - at for (host, at), rank in seats.items() if node and host == short(node)}
    if not begins and _apart(identities):
        begins = {
            r for r, at in identities.node_of_rank.items() if node and short(at) == short(node)
        }
    if len(begins) != 1 or not local < size:
        return None
    (begin,) = begins
    return begin + local if begin >= size > 1 and begin % size == 0 else None


def _of_one_host(identities: Identities, line: LogLine) -> str | None:
    """Return the host of a line without a label, where the launcher lists all ranks of the job on one host."""
    places = identities.ranks_at
    return (
        next(iter(places))
        if len(places) == 1 and not line.label and not any(map(is_local, places))
        else None
    )


def device_of_nccl(line: LogLine) -> int | None:
    """Return the device of a process that sees several; 0 is also what each calls the only one that it sees."""
    return number_of_device(line) or None


def number_of_device(line: LogLine) -> int | None:
    """Return the number of the device in front of a line of NCCL."""
    seen = phrase("device-of-nccl").match(line.text)
    return int(seen["gpu"]) if seen else None


def devices_of_processes(case: Case) -> dict[int, int]:
    """Return the device that each process names in front of its lines of NCCL, where each has one of its own."""
    seen: dict[int, set[int]] = defaultdict(set)
    for view in case.views:
        for number in case.lines_with(view, "device-of-nccl"):
            match = phrase("device-of-nccl").match(view.text(number) or "")
            if match is not None:
                seen[int(match["pid"])].add(int(match["gpu"]))
    devices = [device for one in seen.values() for device in one]
    if len(devices) < _SEVERAL or len(devices) != len(seen) or len(set(devices)) < len(devices):
        return {}
    return {pid: min(one) for pid, one in seen.items()}


def gpu_of_its_own(text: str) -> int | None:
    """Return the GPU that a process out of memory names, where it can only be its own.

    The first one is also what a process calls the only one that it sees, and where other ranks of
    a host leave memory by mistake; a second process on a GPU shows such a mistake.
    """
    seen = phrase("gpu-of-allocator").search(text)
    # Where it does not find its own process id, as in a container, it lists itself among the others.
    own = not says("own-memory-told", text)
    alone = len(phrase("process-on-gpu").findall(text)) <= own
    return int(seen["gpu"]) or None if seen and alone else None
