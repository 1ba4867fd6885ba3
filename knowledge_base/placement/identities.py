"""Who is who: names of ranks, tasks, processes, GPUs, hosts and addresses that belong together.

A kernel log knows a PCI address and a process id; a launcher knows process id and local rank; NCCL
knows bus id, device and rank; srun knows tasks and nodes. Only together do they say which rank sat on
the GPU that failed. Each fact keeps the line that tells it, and what contradicts itself is kept apart.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TypeVar

from rerail.domain.evidence import LogLine, Stream
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.placement.column_tables import Row, rows
from rerail.knowledge_base.placement.host_aliases import HostAliases, without_domain
from rerail.knowledge_base.placement.names import pci_key, same_host, short
from rerail.knowledge_base.placement.one_name import rename
from rerail.knowledge_base.placement.own_words import node_in
from rerail.knowledge_base.placement.pod_ranks import node_numbers
from rerail.knowledge_base.placement.processes import Identity, Processes
from rerail.knowledge_base.placement.rank_tables import (
    Held,
    aliases,
    held,
    lines_with_tables,
    orders,
    placed,
)
from rerail.knowledge_base.placement.self_descriptions import described
from rerail.knowledge_base.placement.whole_groups import without_parts
from rerail.knowledge_base.statements import Statement
from rerail.lazy_patterns import lazy
from rerail.log_parsers.host_names import is_address, is_local, looks_like_host
from rerail.log_parsers.text import ZERO
from rerail.log_parsers.view import LogView

MOST_RANKS = 200_000
_ALL_LABELS = 4_000  # lines of a file of which every label is read; of longer ones those of hits
_MOST_TASKS = 65_536
_LONG, _FEW = 400, 64
_NAMES_HOST = lazy(rb"(?i)\b(?:host|node|agent|machine|instance)")
# A process may print lines with its rank in front and lines without.
_RANK_IN_FRONT = lazy(rb"\[(?:[Rr]ank|RANK) ?\d{1,6}\]")
_DIGITS = lazy(r"\d+")
# What stands in front of a line and differs in nothing but the time says the same.
_CLOCK = lazy(
    rb"\d{1,4}[-/]\d\d?[-/]\d\d?[T ]?|\d\d:\d\d:\d\d(?:[.,]\d+)?|(?<![\w.])\d+\.\d{3,}(?![\w.])"
)


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
    """The ranks of a host or replica in the order of their local ranks."""
    rank_of_seat: dict[tuple[str, int], int] = field(default_factory=dict)
    """The rank at a local rank of a host, where a line names all three."""
    rank_of_gpu: dict[tuple[str, int], int] = field(default_factory=dict)
    """The rank on a GPU of a host by the machine's number of it, where a line names all three."""
    gpu_of_pci: dict[tuple[str, str], int] = field(default_factory=dict)
    """The machine's number of a GPU by host and PCI address; the host is empty where nothing names it."""
    gpus_in_order: set[str] = field(default_factory=set)
    """Places whose ranks are in the order of their GPUs as well."""
    other_names: dict[str, str] = field(default_factory=dict)
    """The host that an address, a number or a pod in front of lines stands for, where its own lines say it."""
    lost_nodes: dict[str, LogLine] = field(default_factory=dict)
    """Nodes that the scheduler calls lost, with the line that does."""
    told_by: dict[tuple[str, object], LogLine] = field(default_factory=dict)
    """The line of a fact, by ("rank", 14), ("task", 3), ("address", "10.0.0.1"), ("place", pod)."""
    conflicts: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """Ranks that labels put on several hosts at once."""
    world_size: int | None = None
    per_node: int | None = None
    """How many processes its launcher started on each node, where it says so."""
    node_count: int | None = None
    """How many nodes the job was started on, where its launcher says so."""
    tasks_per_node: int | None = None
    """How many tasks the scheduler started on each node; a launcher may start several processes in one."""
    node_ranks: dict[str, int] = field(default_factory=dict)
    """The numbers that launchers gave to nodes."""
    ranks_seen: set[int] = field(default_factory=set)
    ranks_heard: set[int] = field(default_factory=set)
    """Ranks by a library's own count, which is the job's where there is one group."""
    nodes_seen: set[str] = field(default_factory=set)
    nodes_at_work: set[str] = field(default_factory=set)

    def node_of(self, line: LogLine) -> str | None:
        """Return the host of a line: its own label's, else that of its rank."""
        return line.node or (self.node_of_rank.get(line.rank) if line.rank is not None else None)

    def ranks_on(self, node: str) -> list[int]:
        """Return the ranks that are known to run on a node, in order."""
        return sorted(
            rank
            for rank, where in self.node_of_rank.items()
            if same_host(self.host(where), self.host(node))
        )

    def host(self, name: str) -> str:
        """Return the host that a name stands for: that of a pod or an address, else the name itself."""
        return self.node_of_place.get(name) or self.node_of_address.get(name) or name

    def rank_alone_on(self, node: str) -> int | None:
        """Return the only rank of a host, where it is known that each host of the job has one."""
        hosts = {self.host(where) for where in self.node_of_rank.values()}
        whole = self.world_size is not None and len(self.node_of_rank) == self.world_size == len(
            hosts
        )
        there = self.ranks_on(node) if whole and len(hosts) > 1 else []
        return there[0] if len(there) == 1 else None

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


@dataclass(slots=True)
class _Reading:
    """What is collected while the statements are read."""

    on_gpu: list[tuple[str | None, str, int]] = field(default_factory=list)
    hosts: dict[int, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    places: dict[str, dict[str, LogLine]] = field(default_factory=lambda: defaultdict(dict))
    """The hosts that the lines of a container, pod or replica name."""
    aliases: HostAliases = field(default_factory=HostAliases)
    labels: set[str] = field(default_factory=set)
    printed: dict[int, LogLine] = field(default_factory=dict)
    """Lines of ranks that are nothing but a name, as `srun -l hostname` prints them."""
    above: dict[str, str] = field(default_factory=dict)
    """The host that a map of the job named last, by file."""


def build(case: Case, statements: list[Statement]) -> Identities:
    """Return everything that ties names together: statements, self-descriptions, and labels."""
    found = Identities()
    reading = _Reading()
    for statement in without_parts(statements):
        _read(statement, found, reading)
    for view in case.views:
        for line, who in described(view):
            _introduce(line, who, found)
        _labels(view, found, reading)
    _aliases(case, found, reading)
    rename(found, reading.hosts)
    _conclude(found, reading)
    _tables(case, found)
    rename(found, reading.hosts)
    if found.world_size is None and found.per_node and len(found.nodes_seen) <= 1:
        found.world_size = found.per_node * (found.node_count or 1)
    found.ranks_seen |= case.facts.ranks_heard()
    for rank, seen in case.facts.nodes_of_ranks().items():
        node = found.other_names.get(seen, seen)
        found.node_of_rank.setdefault(rank, node)
        found.nodes_seen.add(node)
        found.nodes_at_work.add(node)
    return found


def _read(statement: Statement, found: Identities, reading: _Reading) -> None:
    """Take over what one statement tells, by the kinds of its form."""
    kinds = statement.form.tells
    if "lost_node" in kinds and (node := statement.slots.get("node")):
        found.lost_nodes.setdefault(node, statement.line)
    if "group_rank" in kinds and (rank := statement.number("rank")) is not None:
        found.ranks_heard.add(rank)
    if "job" in kinds:
        _job(statement, found)
    if kinds & {"host_above", "rank_below"}:
        _map(statement, found, reading)
    if "identity" in kinds:
        _learn(statement, found, reading)
    if "block" in kinds:
        _block(statement, found)


def _map(statement: Statement, found: Identities, reading: _Reading) -> None:
    """A map of a job names a host, and below it its ranks."""
    file = statement.line.file
    if "host_above" in statement.form.tells:
        reading.above[file] = statement.slots["node"]
    number, host = statement.number("rank"), reading.above.get(file)
    if host is not None and number is not None and number <= MOST_RANKS:
        _keep(found.node_of_rank, "rank", number, host, statement.line, found)
        found.nodes_seen.add(host)


def _aliases(case: Case, found: Identities, reading: _Reading) -> None:
    """Tie what stands in front of lines to the names of hosts."""
    for view in case.views:
        reading.aliases.listed(view, reading.labels)
    for label, host, line in reading.aliases.agreed():
        if is_address(label):
            _keep(found.node_of_address, "address", label, host, line, found)
        else:
            _keep(found.node_of_place, "place", label, host, line, found)
        found.other_names[label] = host
    for name, called in without_domain(found.nodes_seen, reading.labels):
        found.other_names.setdefault(name, called)


def _block(statement: Statement, found: Identities) -> None:
    """The ranks from the first of a host on, where its launcher counts them one after the other."""
    rank, local = statement.number("rank"), statement.number("local")
    node = statement.slots.get("node")
    if rank is None or local is None or not node or is_local(node) or not 0 < local <= rank:
        return
    for other in range(rank - local, rank):
        _keep(found.node_of_rank, "rank", other, node, statement.line, found)


def _introduced(found: Identities, reading: _Reading) -> None:
    """A place whose lines name one host, and no other place's lines name it, runs there."""
    named = Counter(host for hosts in reading.places.values() for host in hosts)
    for place, hosts in reading.places.items():
        host, line = next(iter(hosts.items()))
        if len(hosts) == 1 and named[host] == 1 and len(reading.places) > 1:
            _keep(found.node_of_place, "place", place, host, line, found)


def _job(statement: Statement, found: Identities) -> None:
    found.per_node = statement.number("per_node") or found.per_node
    found.node_count = statement.number("nodes") or found.node_count
    found.tasks_per_node = statement.number("tasks_per_node") or found.tasks_per_node
    node = statement.slots.get("node") or statement.line.node or node_in(statement.line.message)
    number = statement.number("node_rank")
    if node and number is not None:
        found.node_ranks.setdefault(node, number)
        found.told_by.setdefault(("node rank", node), statement.line)
    _world(statement, found)


def _world(statement: Statement, found: Identities) -> None:
    size = statement.number("world")
    if size is not None and 1 < size <= MOST_RANKS:
        found.world_size = max(found.world_size or 0, size)


def _learn(statement: Statement, found: Identities, reading: _Reading) -> None:
    """Join the names of one statement; those of a writer with the label of its line."""
    line, slots = statement.line, statement.slots
    who = _who(statement, found)
    node = who.node
    _world(statement, found)
    if address := slots.get("address"):
        _keep(found.node_of_address, "address", address, node, line, found)
    if statement.form.about == "writer" or "own_host" in statement.form.tells:
        reading.aliases.told(line.node, slots.get("node"), line)
    if statement.form.about == "writer" and line.place and "node" in slots:
        _keep(found.node_of_place, "place", line.place, node, line, found)
    for slot in ("container", "pod", "place"):
        if place := slots.get(slot):
            _keep(found.node_of_place, "place", place, node, line, found)
    if ranks := slots.get("ranks"):
        _seats(statement, ranks, found)
    elif tasks := slots.get("tasks") or slots.get("task"):
        _tasks(numbers(tasks), node, line, found)
    else:
        _process(who, slots.get("pci"), line, found, reading)
        if node and statement.form.about == "writer" and line.stream is not Stream.KERNEL:
            found.nodes_seen.add(node)
            found.nodes_at_work.add(node)


def _who(statement: Statement, found: Identities) -> Identity:
    """Return the process that a statement is about; a writer is the process of the label as well.

    A writer that names a process id may speak of another; one that introduces itself does not.
    """
    line = statement.line
    rank, pid = statement.number("rank"), statement.number("pid")
    node = statement.slots.get("node")
    if statement.form.about in ("writer", "self"):
        node = node or line.node
        if rank is None and (pid is None or statement.form.about == "self"):
            rank = line.rank
        elif rank is not None and line.rank is not None and rank > line.rank:
            found.rank_of_task.setdefault(line.rank, rank)
            found.told_by.setdefault(("task's rank", line.rank), line)
        if pid is None and (rank is None or line.rank in (None, rank)):
            pid = line.pid
    return Identity(
        rank=rank,
        local_rank=statement.number("local"),
        node=None if is_local(node) else node,
        gpu=statement.number("gpu"),
        pid=pid,
    )


def _tasks(listed: list[int], node: str | None, line: LogLine, found: Identities) -> None:
    found.tasks_are_ranks = found.tasks_are_ranks or len(listed) > 1
    for task in listed:
        _keep(found.node_of_task, "task", task, node, line, found)


def _process(
    who: Identity, pci: str | None, line: LogLine, found: Identities, reading: _Reading
) -> None:
    if pci is not None and who.rank is None:
        if who.pid is not None:
            reading.on_gpu.append((who.node, pci, who.pid))
        return
    if pci is not None:
        found.by_pci.setdefault(f"{who.node or ''}|{pci_key(pci)}", who)
    if who.rank is not None:
        found.ranks_seen.add(who.rank)
        _keep(found.node_of_rank, "rank", who.rank, who.node, line, found)
        found.told_by.setdefault(("rank", who.rank), line)
        if who.node:
            found.nodes_seen.add(who.node)
            found.nodes_at_work.add(who.node)
            if who.gpu is not None:
                found.rank_of_gpu.setdefault((short(who.node), who.gpu), who.rank)
            if who.local_rank is not None:
                found.rank_of_seat.setdefault((short(who.node), who.local_rank), who.rank)
    if who.pid is not None:
        found.by_pid.learn(
            who.pid, rank=who.rank, local_rank=who.local_rank, node=who.node, gpu=who.gpu
        )
        if who.rank is not None:
            found.told_by.setdefault(("pid", who.pid), line)


_Key = TypeVar("_Key", int, str)


def _keep(
    table: dict[_Key, str], kind: str, key: _Key, node: str | None, line: LogLine, found: Identities
) -> None:
    if not node or node == key:  # the host name of a pod is its own
        return
    if key not in table:
        table[key] = node
        found.told_by[kind, key] = line
    elif kind == "rank" and rivals(table[key], node):
        seen = {*found.conflicts.get(int(key), ()), table[key], node}
        found.conflicts[int(key)] = tuple(sorted(seen))


def _seats(statement: Statement, text: str, found: Identities) -> None:
    """The ranks of one place; those of a later round replace those of an earlier one."""
    ranks = tuple(int(part) for part in text.split(", "))
    node = statement.slots.get("node")
    place = node or statement.line.node or statement.line.place
    if place is None:
        return
    found.ranks_at[place] = ranks
    if node is None:
        return
    found.gpus_in_order.add(node)
    for rank in ranks:
        _keep(found.node_of_rank, "rank", rank, node, statement.line, found)


def _tables(case: Case, found: Identities) -> None:
    """Place the ranks that tables of the logs place, as far as nothing contradicts a table."""
    lines = [line for view in case.views for line in lines_with_tables(view)]
    per_node = found.per_node or (found.tasks_per_node if (found.tasks_per_node or 0) > 1 else None)
    for address, host, line in aliases(lines):
        _keep(found.node_of_address, "address", address, host, line, found)
    for view in case.views:
        for row in rows(view):
            _row(row, found)
    _pods(found, per_node)
    known = found.node_of_task | found.node_of_rank
    told = [held(lines)]
    told += [placed(one, per_node, found.world_size, known) for one in orders(lines)]
    told.append(_by_node_rank(per_node, found))
    for blocks in told:
        rivalled = any(
            rank in found.node_of_rank and rivals(found.node_of_rank[rank], block.host)
            for block in blocks
            for rank in range(block.first, block.last + 1)
        )
        for block in blocks if not rivalled else ():
            ranks = range(block.first, block.last + 1)
            found.ranks_at.setdefault(block.host, tuple(ranks))
            found.nodes_seen.add(block.host)
            found.nodes_at_work.add(block.host)
            for rank in ranks:
                _keep(found.node_of_rank, "rank", rank, block.host, block.line, found)


def _row(row: Row, found: Identities) -> None:
    """What one row of a table with titles ties together."""
    node, rank, pid = row.cells.get("node"), row.number("rank"), row.number("pid")
    task, line, gpu = row.number("task"), row.line, row.number("gpu")
    if gpu is not None and (pci := row.cells.get("pci")):
        found.gpu_of_pci.setdefault((short(line.node or ""), pci_key(pci)), gpu)
    for kind in ("pod", "address"):
        if name := row.cells.get(kind):
            table = found.node_of_place if kind == "pod" else found.node_of_address
            _keep(table, "place" if kind == "pod" else kind, name, node, line, found)
    if task is not None and rank is None:
        _keep(found.node_of_task, "task", task, node, line, found)
    if rank is not None:
        who = Identity(rank=rank, local_rank=row.number("local"), node=node, pid=pid)
        _process(who, None, line, found, _Reading())


def _pods(found: Identities, per_node: int | None) -> None:
    """The ranks of pods that an operator numbers, where each holds as many as the others."""
    numbered = node_numbers(found.node_of_place)
    world, count = found.world_size, len(numbered)
    each = world // count if world and count and world % count == 0 else per_node
    if count < 2 or not each or (per_node is not None and each != per_node):
        return
    for pod, number in numbered.items():
        ranks = tuple(range(number * each, (number + 1) * each))
        found.ranks_at.setdefault(pod, ranks)
        for rank in ranks:
            line = found.told_by["place", pod]
            _keep(found.node_of_rank, "rank", rank, found.node_of_place[pod], line, found)


def _by_node_rank(per_node: int | None, found: Identities) -> list[Held]:
    """The blocks of nodes that know their own number; of two with one number none."""
    counted = Counter(found.node_ranks.values())
    return [
        Held(node, number * per_node, (number + 1) * per_node - 1, found.told_by["node rank", node])
        for node, number in sorted(found.node_ranks.items())
        if per_node and counted[number] == 1
    ]


def _fill_blocks(found: Identities) -> None:
    """Give a rank of which nothing says where it ran the host whose block of ranks it is in.

    Launchers give each host a block of consecutive ranks. It must be shown by the hosts that are known: each rank
    known lies in the block of its host, no two hosts share one, and at least one block is known as a whole.
    """
    world, known = found.world_size, found.node_of_rank
    hosts = sorted(set(known.values()))
    if world is None or world > _MOST_TASKS or len(hosts) < 2 or world % len(hosts):
        return
    size = world // len(hosts)
    host_of: dict[int, str] = {}
    for rank, host in known.items():
        if host_of.setdefault(rank // size, host) != host:
            return
    blocks = {block: tuple(range(block * size, (block + 1) * size)) for block in host_of}
    whole = [block for block, ranks in blocks.items() if all(rank in known for rank in ranks)]
    if (
        size < 2
        or len(host_of) != len(hosts)
        or len(set(host_of.values())) != len(hosts)
        or not whole
    ):
        return
    for block, ranks in blocks.items():
        host, near = host_of[block], next(rank for rank in ranks if rank in known)
        found.ranks_at.setdefault(host, ranks)
        for rank in ranks:
            if rank not in known and ("rank", near) in found.told_by:
                _keep(known, "rank", rank, host, found.told_by["rank", near], found)


def rivals(a: str, b: str) -> bool:
    """Tell whether two names are of two machines of one series; a pod's name and its host's are no rivals."""
    return not same_host(a, b) and _DIGITS.sub("0", short(a)) == _DIGITS.sub("0", short(b))


def numbers(text: str) -> list[int]:
    """Return the numbers of a list with ranges: "0-2,5" is 0, 1, 2 and 5."""
    found: list[int] = []
    for part in text.strip("[]").split(","):
        first, _, last = part.strip("[]").partition("-")
        if first.isdigit():
            end = int(last) if last.isdigit() else int(first)
            found += range(int(first), min(end, int(first) + _MOST_TASKS) + 1)
    return found


def _introduce(line: LogLine, who: Identity, found: Identities) -> None:
    """A line on which a process gives its rank, host and id is believed as a whole."""
    if who.rank is None or who.node is None:
        return
    found.ranks_seen.add(who.rank)
    _keep(found.node_of_rank, "rank", who.rank, who.node, line, found)
    found.nodes_seen.add(who.node)
    found.nodes_at_work.add(who.node)
    if who.pid is not None:
        found.by_pid.learn(who.pid, rank=who.rank, node=who.node, gpu=who.gpu)


def _labels(view: LogView, found: Identities, reading: _Reading) -> None:
    """Labels tie ranks to nodes; parsing every line is too slow for large logs, hits suffice."""
    kept = view.survey.kept
    hits = sorted({h.line for h in view.survey.hits})
    fronts: set[bytes] = set()
    naming: Counter[bytes] = Counter()
    for number in view.numbers if len(view.numbers) <= _ALL_LABELS else hits:
        front = _CLOCK.sub(b"", kept[number][:160]) if number in kept else b""
        rank = _RANK_IN_FRONT.search(front)
        front = b" ".join(front.split(None, 2)[:2]) + (rank[0] if rank else b"")
        if front in fronts and not _may_introduce(kept.get(number, b"")[:_LONG], naming):
            continue
        fronts.add(front)
        line = view.line(number)
        if line is not None:
            _read_label(line, found, reading)


def _may_introduce(raw: bytes, seen: Counter[bytes]) -> bool:
    """Tell whether a line may say where its writer runs; of lines that differ in numbers alone a few tell."""
    if not _NAMES_HOST.search(raw):
        return False
    same = raw.translate(ZERO)
    seen[same] += 1
    return seen[same] <= _FEW


def _read_label(line: LogLine, found: Identities, reading: _Reading) -> None:
    reading.labels |= {name for name in (line.node, line.place) if name}
    reading.aliases.told(line.alias, line.node, line)
    if line.rank is not None:
        found.ranks_seen.add(line.rank)
        if line.node:
            reading.hosts[line.rank][line.node] += 1
            found.told_by.setdefault(("label", line.rank), line)
    if line.rank is not None and not line.node and looks_like_host(line.message):
        reading.printed[line.rank] = line
    if line.place and not line.node and (host := node_in(line.message)):
        reading.places[line.place].setdefault(host, line)
    if line.node and line.stream is not Stream.TOOL:
        found.nodes_seen.add(line.node)
        if line.stream is not Stream.KERNEL:
            found.nodes_at_work.add(line.node)
    if line.pid is not None and line.rank is not None:
        found.by_pid.learn(line.pid, rank=line.rank, node=line.node)


def _conclude(found: Identities, reading: _Reading) -> None:
    for rank, seen in reading.hosts.items():
        # A collector's host and a pod's name are two names of one place; two counted hosts are not.
        first = max(sorted(seen), key=lambda name: seen[name])
        others = {name for name in seen if rivals(name, found.node_of_rank.get(rank, first))}
        if others:
            found.conflicts[rank] = tuple(sorted({*found.conflicts.get(rank, ()), first, *others}))
        if rank not in found.node_of_rank:
            found.node_of_rank[rank] = first
            found.told_by.setdefault(("rank", rank), found.told_by["label", rank])
    _introduced(found, reading)
    if len({_DIGITS.sub("0", line.message) for line in reading.printed.values()}) == 1:
        for rank, line in reading.printed.items() if len(reading.printed) > 1 else ():
            _keep(found.node_of_rank, "rank", rank, line.message, line, found)
    if found.tasks_are_ranks and not found.rank_of_task:
        for task, where in found.node_of_task.items():
            if task in found.ranks_seen:
                _keep(found.node_of_rank, "rank", task, where, found.told_by["task", task], found)
    _fill_blocks(found)
    for node, pci, pid in reading.on_gpu:
        identity = found.by_pid.learn(pid, node=node)
        found.by_pci.setdefault(f"{node or ''}|{pci_key(pci)}", identity)
    for identity in found.by_pid:
        if identity.rank is not None and identity.node:
            found.node_of_rank.setdefault(identity.rank, identity.node)
