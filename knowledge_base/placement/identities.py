"""Who is who: names of ranks, tasks, processes, GPUs, hosts and addresses that belong together.

A kernel log knows a PCI address and a process id; a launcher knows process id and local rank; NCCL
knows bus id, device and rank; srun knows tasks and nodes. Only together do they say which rank sat on
the GPU that failed. Each fact keeps the line that tells it, and what contradicts itself is kept apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from typing import TypeVar

from rerail.domain.evidence import LogLine
from rerail.knowledge_base.phrases import says
from rerail.knowledge_base.placement.introductions import Introduced, Writer
from rerail.knowledge_base.placement.names import pci_key, same_host, short
from rerail.knowledge_base.placement.processes import Identity, Processes
from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy

MOST_RANKS = 200_000
_ONE_LIST = 50  # lines
_DIGITS = lazy(r"\d+")
_Key = TypeVar("_Key", int, str)


@dataclass(slots=True)
class Identities:
    """Look-ups from what one program knows to what another does."""

    by_pid: Processes = field(default_factory=Processes)
    by_pci: dict[str, Identity] = field(default_factory=dict)
    node_of_rank: dict[int, str] = field(default_factory=dict)
    node_of_task: dict[int, str] = field(default_factory=dict)
    tasks_are_ranks: bool = False
    """srun started several tasks on a node, so that a task is a rank and no launcher of them."""
    rank_of_task: dict[int, int] = field(default_factory=dict)
    """The rank that the process behind a numbered label calls itself, where the label counts tasks."""
    node_of_address: dict[str, str] = field(default_factory=dict)
    node_of_place: dict[str, str] = field(default_factory=dict)
    """The host of a container, pod or replica that stands in front of lines."""
    ranks_at: dict[str, tuple[int, ...]] = field(default_factory=dict)
    node_ranks_of_log: dict[str, set[int]] = field(default_factory=dict)
    """The numbers of nodes that a file's lines without a host give to the launcher that wrote it."""
    ranks_of_log: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """The ranks of the one agent that wrote a file, whose lines carry no label; none where two lists differ."""
    """The ranks of a host or replica in the order of their local ranks."""
    rank_of_seat: dict[tuple[str, int], int] = field(default_factory=dict)
    """The rank at a local rank of a host, where a line names all three."""
    ranks_of_locals: dict[int, set[int]] = field(default_factory=dict)
    """By the local rank in front of lines that name no host, the ranks that those lines call themselves."""
    rank_of_gpu: dict[tuple[str, int], int] = field(default_factory=dict)
    """The rank on a GPU of a host by the machine's number of it, where a line names all three."""
    gpu_of_pci: dict[tuple[str, str], int] = field(default_factory=dict)
    """The machine's number of a GPU by host and PCI address; the host is empty where nothing names it."""
    gpus_in_order: set[str] = field(default_factory=set)
    """Places whose ranks are in the order of their GPUs as well."""
    introduced: dict[Writer, Introduced] = field(default_factory=dict)
    """The ranks by which writers of lines without a rank introduce themselves."""
    other_names: dict[str, str] = field(default_factory=dict)
    """The host that an address, a number or a pod in front of lines stands for, where its own lines say it."""
    lost_nodes: dict[str, LogLine] = field(default_factory=dict)
    """Nodes that the scheduler calls lost, with the line that does."""
    set_aside: dict[str, LogLine] = field(default_factory=dict)
    """Hosts that a platform's own check took out of service, with the line that says so."""
    told_by: dict[tuple[str, object], LogLine] = field(default_factory=dict)
    """The line of a fact, by ("rank", 14), ("task", 3), ("address", "10.0.0.1"), ("place", pod)."""
    conflicts: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """Ranks that labels put on several hosts at once."""
    world_size: int | None = None
    per_node: int | None = None
    """How many processes its launcher started on each node, where it says so."""
    most_per_node: int | None = None
    """How many ranks a host has at most, by the GPUs that its processes see."""
    node_count: int | None = None
    """How many nodes the job was started on, where its launcher says so."""
    job_nodes: int | None = None
    """How many nodes the scheduler gave the job: what all of them print stands in its one output."""
    tasks_per_node: int | None = None
    """How many tasks the scheduler started on each node; a launcher may start several processes in one."""
    host_numbered: dict[str, str] = field(default_factory=dict)
    """The host by the number of its node, as lines may have it in front."""
    node_ranks: dict[str, int] = field(default_factory=dict)
    """The numbers that launchers gave to nodes."""
    launcher_tasks: set[int] = field(default_factory=set)
    """Tasks of a scheduler or of mpirun that are launchers: each starts the ranks of a node."""
    launchers: set[int] = field(default_factory=set)
    """The numbers of the nodes whose launchers are heard, whether or not their hosts are known."""
    ranks_seen: set[int] = field(default_factory=set)
    ranks_heard: set[int] = field(default_factory=set)
    """Ranks by a library's own count, which is the job's where there is one group."""
    twice: set[tuple[str, object]] = field(default_factory=set)
    """Names that one listing has twice, for two places."""
    moves: list[tuple[LogLine, frozenset[int], str]] = field(default_factory=list)
    """Lines behind which some ranks run on another host."""
    prints_for_all: set[str] = field(default_factory=set)
    """The host in front of lines of more ranks than one host holds: a launcher or a collector prints there."""
    hosts_of_listed_pods: set[str] = field(default_factory=set)
    """The hosts in a table of pods."""
    local_labels: bool = False
    """Labels count the ranks of each host anew."""
    told_of_several: bool = False
    """Some line tells of several nodes, each file is of a host of its own, or several pods tell exits."""
    onlookers: set[str] = field(default_factory=set)
    """Hosts at whose shell somebody looked at what came from elsewhere."""
    rank_of_pod: dict[str, int] = field(default_factory=dict)
    """The ranks that have the numbers of their pods, in which each runs alone."""
    nodes_seen: set[str] = field(default_factory=set)
    nodes_at_work: set[str] = field(default_factory=set)

    @property
    def counts_from_one(self) -> bool:
        """Whether ranks go from one to as many as there are: a library's own go from none to one less."""
        seen, size = self.ranks_seen, self.world_size or 0
        return size > 1 and {1, size} <= seen and max(seen) == size and 0 not in seen

    def node_of(self, line: LogLine) -> str | None:
        """Return the host of a line: its own label's, else that of its rank."""
        rank = line.rank
        return self.node_in_front(line) or (
            self.node_of_rank.get(rank) if rank is not None else None
        )

    def moved_to(self, rank: int, line: LogLine) -> tuple[str, LogLine] | None:
        """Return the host to which a rank was moved above a line, and the line that says so."""
        told = [
            (to, said)
            for said, ranks, to in self.moves
            if rank in ranks and said.file == line.file and said.number < line.number
        ]
        return told[-1] if told else None

    def node_in_front(self, line: LogLine) -> str | None:
        """Return the host that labels a line, unless it stands in front of what ranks of several hosts print."""
        return None if line.rank is not None and line.node in self.prints_for_all else line.node

    def rank_of(self, line: LogLine) -> int | None:
        """Return the rank of a line: its own label's, else that of the process that prints it."""
        if line.rank is not None or line.pid is None:
            return line.rank
        who = self.by_pid.get(line.pid, line.node)
        return who.rank if who is not None else None

    def ranks_on(self, node: str) -> list[int]:
        """Return the ranks that are known to run on a node, in order."""
        return sorted(
            rank
            for rank, where in self.node_of_rank.items()
            if same_host(self.host(where), self.host(node))
        )

    def block_on(self, node: str) -> list[int]:
        """Return the ranks that are known to run on a node, in order, none where there is a gap between them."""
        held = self.ranks_on(node)
        return held if held and held[-1] - held[0] == len(held) - 1 else []

    def held_on(self, node: str) -> tuple[int, ...]:
        """Return the ranks of a node, or of the only pod that runs there, in the order of their local ranks."""
        if node in self.ranks_at:
            return self.ranks_at[node]
        pods = [pod for pod, where in self.node_of_place.items() if same_host(where, node)]
        return self.ranks_at.get(pods[0], ()) if len(pods) == 1 else ()

    def undisputed(self, rank: int) -> str | None:
        """Return the node of a rank; None where none is known, or lines tell of several."""
        return None if rank in self.conflicts else self.node_of_rank.get(rank)

    def host(self, name: str) -> str:
        """Return the host that a name stands for: that of a pod or an address, else the name itself.

        Of the name that the cluster's own name service has for a pod it is the pod.
        """
        known = self.node_of_place.get(name) or self.node_of_address.get(name)
        if known is None and says("pod-by-name-service", name):
            name = short(name)
        return known or self.node_of_place.get(name, name)

    def hosts(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the hosts that some names stand for, each once, in order."""
        return tuple(dict.fromkeys(map(self.host, names)))

    def rank_alone_on(self, node: str) -> int | None:
        """Return the only rank of a host or pod, where it is known that each one of the job has one."""
        if node in self.rank_of_pod:
            return self.rank_of_pod[node]
        hosts = {self.host(where) for where in self.node_of_rank.values()}
        whole = self.world_size is not None and len(self.node_of_rank) == self.world_size == len(
            hosts
        )
        there = self.ranks_on(node) if (whole and len(hosts) > 1) or self.per_node == 1 else []
        return there[0] if len(there) == 1 else None

    def seats(self, place: str | None, line: LogLine) -> tuple[int, ...]:
        """Return the ranks of a place in the order of their local ranks; of a line without one, those of its log's agent."""
        if not place:
            return self.ranks_of_log.get(line.file, ())
        if place.isdigit() and self.per_node and place not in self.ranks_at:
            first = int(place) * self.per_node
            return tuple(range(first, first + self.per_node))
        return self.ranks_at.get(place, ())

    def gpu_at(self, address: str, node: str | None) -> Identity | None:
        """Return who used a PCI address: on that node, or on the only node that has the address."""
        key = pci_key(address)
        exact = self.by_pci.get(f"{node or ''}|{key}")
        if exact is not None:
            return exact
        found = [v for k, v in self.by_pci.items() if k.endswith(f"|{key}")]
        if len(found) != 1:
            return None
        own = self.node_of_place.get(found[0].node or "", found[0].node)  # a pod's name in front
        return None if node and own and not same_host(own, node) else found[0]

    def keep(
        self, table: dict[_Key, str], kind: str, key: _Key, node: str | None, line: LogLine
    ) -> None:
        """Take a host into a table unless it is known; ranks on two hosts of one series are conflicts."""
        if not node or node == key:  # the host name of a pod is its own
            return
        if kind == "rank" and says("no-compute-host", node):
            return
        if (kind, key) in self.twice:
            return
        if key not in table:
            table[key] = node
            self.told_by[kind, key] = line
        elif kind == "place" and table[key] != node and self._moved(str(key), node, line):
            del table[key]
            self.twice.add((kind, key))
        elif kind == "rank" and rivals(table[key], node):
            seen = {*self.conflicts.get(int(key), ()), table[key], node}
            self.conflicts[int(key)] = tuple(sorted(seen))

    def forget(self, node: str) -> None:
        """Forget which ranks and tasks ran on a node."""
        for table in (self.node_of_rank, self.node_of_task):
            for key in [key for key, where in table.items() if same_host(where, node)]:
                del table[key]

    def _moved(self, place: str, node: str, line: LogLine) -> bool:
        """Tell whether a pod has two hosts: one after the other, or under one name in two namespaces."""
        return rivals(self.node_of_place[place], node) or self._in_one_list(place, line)

    def _in_one_list(self, place: str, line: LogLine) -> bool:
        """Tell whether one listing has a name twice, behind different words: two namespaces have such a pod."""
        before = self.told_by.get(("place", place))
        if before is None:
            return False
        words = {before.text.split(maxsplit=1)[0], line.text.split(maxsplit=1)[0]}
        near = before.file == line.file and 0 < line.number - before.number <= _ONE_LIST
        return near and len(words) > 1 and place not in words

    def learn(self, who: Identity, line: LogLine) -> None:
        """Join the names of one process of a rank, and of its process id."""
        if who.rank is not None:
            self.ranks_seen.add(who.rank)
            self.keep(self.node_of_rank, "rank", who.rank, who.node, line)
            self.told_by.setdefault(("rank", who.rank), line)
            if who.node:
                self.nodes_seen.add(who.node)
                self.nodes_at_work.add(who.node)
                if who.gpu is not None:
                    self.rank_of_gpu.setdefault((short(who.node), who.gpu), who.rank)
                if who.local_rank is not None:
                    self.rank_of_seat.setdefault((short(who.node), who.local_rank), who.rank)
        if who.pid is not None:
            self.by_pid.learn(
                who.pid, rank=who.rank, local_rank=who.local_rank, node=who.node, gpu=who.gpu
            )
            if who.rank is not None:
                self.told_by.setdefault(("pid", who.pid), line)


def rivals(a: str, b: str) -> bool:
    """Tell whether two names are of two machines of one series; a pod's name and its host's are no rivals."""
    return not same_host(a, b) and _DIGITS.sub("0", short(a)) == _DIGITS.sub("0", short(b))
