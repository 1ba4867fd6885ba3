"""Which process of the job a process id names: ids repeat between nodes, and in containers often do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import field

from rerail.domain.evidence import LogLine
from rerail.knowledge_base.phrases import phrase
from rerail.knowledge_base.placement.names import same_host
from rerail.late_dataclass import dataclass
from rerail.log_parsers.host_names import is_address

_OF_A_HOST = 10_000  # ids in containers are lower, and alike in many


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

    other_names: dict[str, str] = field(default_factory=dict)
    """The name of a host by what else it is called."""
    _by_pid: dict[int, list[Identity]] = field(default_factory=lambda: defaultdict(list))

    def __iter__(self) -> Iterator[Identity]:
        for found in self._by_pid.values():
            yield from found

    def get(self, pid: int, node: str | None = None) -> Identity | None:
        """Return the process, or None where the id is unknown or may be several processes'."""
        found = self._by_pid.get(pid, [])
        node = self.other_names.get(node or "", node)
        exact = [one for one in found if node and same_host(one.node, node)]
        near = exact or [one for one in found if not node or one.node is None]
        if not near and pid >= _OF_A_HOST and node and not is_address(node):
            # An address that no line ties to a host may be this one's.
            near = found if all(is_address(one.node or "") for one in found) else []
        return near[0] if len(near) == 1 else None

    def rename(self, other_names: dict[str, str]) -> None:
        """Call hosts by one name each; what was known of one process under two names of its host is joined."""
        self.other_names = other_names
        for pid, found in self._by_pid.items():
            for one in found:
                one.node = other_names.get(one.node or "", one.node)
            joined: list[Identity] = []
            for one in sorted(found, key=lambda one: one.rank is None):
                same = [
                    other
                    for other in joined
                    if same_host(one.node, other.node)
                    and _fits(one.rank, other.rank)
                    and _fits(one.local_rank, other.local_rank)
                ]
                if len(same) == 1:
                    _fill(same[0], one)
                else:
                    joined.append(one)
            self._by_pid[pid] = joined

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
        _fill(found[0], Identity(rank, local_rank, node, gpu))
        return found[0]


def pid_in_front(line: LogLine) -> int | None:
    """Return the process id in front of a line, or that of a file that only its process writes.

    glog has a thread's in front, which is the process's own for its first one.
    """
    if line.pid is not None:
        return line.pid
    thread = phrase("thread-in-front").match(line.text)
    if thread is not None:
        return int(thread["pid"])
    own = phrase("file-of-own-process").search(line.text)
    return int(own["pid"] or own["pid2"]) if own is not None else None


def _fill(one: Identity, told: Identity) -> None:
    """Add what is not known yet."""
    one.rank = told.rank if one.rank is None else one.rank
    one.local_rank = told.local_rank if one.local_rank is None else one.local_rank
    one.node = told.node if one.node is None else one.node
    one.gpu = told.gpu if one.gpu is None else one.gpu


def _fits(known: int | None, told: int | None) -> bool:
    return known is None or told is None or known == told
