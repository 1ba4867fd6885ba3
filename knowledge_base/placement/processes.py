"""Which process of the job a process id names: ids repeat between nodes, and in containers often do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from rerail.knowledge_base.placement.names import same_host


@dataclass(slots=True)
class Identity:
    """One process of the job, as far as it is known."""

    rank: int | None = None
    local_rank: int | None = None
    node: str | None = None
    gpu: int | None = None
    pid: int | None = None


@dataclass(slots=True)
class Processes:
    """The processes of a job by their ids; one id stands for as many as there are nodes with it."""

    _by_pid: dict[int, list[Identity]] = field(default_factory=lambda: defaultdict(list))

    def __iter__(self) -> Iterator[Identity]:
        for found in self._by_pid.values():
            yield from found

    def get(self, pid: int, node: str | None = None) -> Identity | None:
        """Return the process, or None where the id is unknown or may be several processes'."""
        found = self._by_pid.get(pid, [])
        exact = [one for one in found if node and same_host(one.node, node)]
        near = exact or [one for one in found if not node or one.node is None]
        return near[0] if len(near) == 1 else None

    def learn(
        self,
        pid: int,
        *,
        rank: int | None = None,
        local_rank: int | None = None,
        node: str | None = None,
        gpu: int | None = None,
    ) -> Identity:
        """Add what one line tells to the process that it fits, or to a new one."""
        found = [
            one
            for one in self._by_pid[pid]
            if _fits(one.rank, rank)
            and _fits(one.local_rank, local_rank)
            and (not node or not one.node or same_host(one.node, node))
        ]
        # The closest first: the same rank, then the same node.
        found.sort(
            key=lambda one: (
                rank is None or one.rank != rank,
                not node or not same_host(one.node, node),
            )
        )
        if len(found) > 1 and rank is None and node is None:
            # It may be any of them: kept apart, so that nobody gets what is another's.
            found = [one for one in found if one.rank is None and one.node is None]
        if not found:
            found = [Identity(pid=pid)]
            self._by_pid[pid].append(found[0])
        one = found[0]
        one.rank = rank if one.rank is None else one.rank
        one.local_rank = local_rank if one.local_rank is None else one.local_rank
        one.node = node if one.node is None else one.node
        one.gpu = gpu if one.gpu is None else one.gpu
        return one


def _fits(known: int | None, told: int | None) -> bool:
    return known is None or told is None or known == told
