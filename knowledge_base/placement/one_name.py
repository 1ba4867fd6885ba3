"""Calls each host by one name in all that is known of a job."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rerail.knowledge_base.placement.names import short

if TYPE_CHECKING:
    from rerail.knowledge_base.placement.identities import Identities


def rename(found: Identities, seen: dict[int, Counter[str]]) -> None:
    """Replace the other names of hosts by their own; what counts the processes of a host is known by both.

    Args:
        found: what is known; changed in place.
        seen: how often the lines of each rank name which host; changed in place.
    """
    names = found.other_names
    if names or found.node_of_address:
        found.by_pid.rename(found.node_of_address | names)
    if not names:
        return
    for by_number in (found.node_of_rank, found.node_of_task):
        for number, node in by_number.items():
            by_number[number] = names.get(node, node)
    for by_name in (found.node_of_address, found.node_of_place):
        for name, node in by_name.items():
            by_name[name] = names.get(node, node)
    for label, host in names.items():
        _number_of_node(found, label, host)
        _seats(found, label, host)
        _seats(found, host, label)
    for hosts in (found.nodes_seen, found.nodes_at_work):
        renamed = {names.get(node, node) for node in hosts}
        hosts.clear()
        hosts |= renamed
    for rank, counts in seen.items():
        seen[rank] = Counter()
        for node, count in counts.items():
            seen[rank][names.get(node, node)] += count


def _number_of_node(found: Identities, label: str, host: str) -> None:
    number = found.node_ranks.pop(label, None)
    if number is not None:
        found.node_ranks.setdefault(host, number)
        found.told_by.setdefault(("node rank", host), found.told_by["node rank", label])


def _seats(found: Identities, one: str, other: str) -> None:
    """What is known of the processes of a host by one of its names is known by the other."""
    if one in found.ranks_at:
        found.ranks_at.setdefault(other, found.ranks_at[one])
    if one in found.gpus_in_order:
        found.gpus_in_order.add(other)
    for table in (found.rank_of_seat, found.rank_of_gpu):
        there = {index: rank for (place, index), rank in table.items() if place == short(one)}
        for index, rank in there.items():
            table.setdefault((short(other), index), rank)
