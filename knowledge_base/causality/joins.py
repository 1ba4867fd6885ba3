"""Who is who: process ids, PCI addresses and local ranks joined to ranks, GPUs and nodes.

A kernel log knows a PCI address and a process id; a launcher knows process id and local rank; NCCL
knows bus id, device and rank. Only together do they say which rank sat on the GPU that failed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field

from rerail.domain.evidence import LogLine, Stream
from rerail.knowledge_base.causality.case import Case
from rerail.knowledge_base.causality.identity_lines import WORDS, identity_in
from rerail.knowledge_base.causality.processes import Identity, Processes
from rerail.knowledge_base.causality.seats import Seats
from rerail.log_parsers.view import LogView

_AGENT_PID = re.compile(r"local_rank: (?P<local>\d+) \(pid: (?P<pid>\d+)\)")
_BLOCK_RANK = re.compile(r"rank\s*: (?P<rank>\d+) \(local_rank: (?P<local>\d+)\)")
_BLOCK_PID = re.compile(r"exitcode\s*: (?P<code>-?\d+) \(pid: (?P<pid>\d+)\)")
_BLOCK_HOST = re.compile(r"host\s*: (?P<host>\S+)")
_NCCL_INIT = re.compile(
    r"\brank (?P<rank>\d+) nranks (?P<n>\d+) cudaDev (?P<dev>\d+)(?: nvmlDev (?P<nvml>\d+))? busId (?P<bus>[0-9a-fA-F]+)"
)
_WORKER = re.compile(
    r"\((?:[A-Za-z_]*?)(?:Worker|worker|rank|Rank)[_ ]?(?:TP|DP|PP|R)?(?P<rank>\d+)[^)]*?pid=(?P<pid>\d+)"
)
_WORLD = re.compile(
    r"(?:world[ _]size|nranks|WORLD_SIZE)[\"' ]*[:= ]+\(?(?P<n>\d{1,6})\b", re.IGNORECASE
)
_NPROC = re.compile(r"nproc[_-]per[_-]node[= ]+(?P<n>\d{1,3})\b")
_NNODES = re.compile(r"\bnnodes[= ]+(?P<n>\d{1,5})\b")
# NCCL's proxy thread tells whose it is, and mpirun which rank had a process id.
_PROXY = re.compile(r"\[Proxy Service (?P<rank>\d{1,6})\]")
_MPI_PID = re.compile(r"process rank (?P<rank>\d+) with PID (?P<pid>\d+) on node (?P<node>\S+)")
# Each host says with which address NCCL starts on it; peers know it by nothing else.
_ADDRESS = re.compile(
    r"(?:Bootstrap : Using|; OOB) [\w.-]{1,16}:(?P<address>\d{1,3}(?:\.\d{1,3}){3})<"
)
# Megatron's rerun state machine says where a rank sits.
_SEATED = re.compile(r"\b[Rr]ank (?P<rank>\d{1,6}), node (?P<node>[\w.-]{1,80}), device \d")
# Ray Train lists its workers: host, process, rank.
_RAY_SEAT = re.compile(
    r"\bip=(?P<node>[^,)\s]{3,60}), pid=(?P<pid>\d{1,8})\) world_rank=(?P<rank>\d{1,6}), local_rank=(?P<local>\d{1,3})"
)
_WORDS = re.compile(
    rb"local_rank|global_rank_mapping|global_ranks=|exitcode|host |nranks|pid=|Xid|nproc|nnodes|orld|WORLD|"
    rb"\[Proxy Service \d|with PID|, node |Bootstrap : U|; OOB |" + WORDS
)
_INTRODUCED = re.compile(WORDS)
_XID_PID = re.compile(r"Xid \((?:PCI:)?(?P<pci>[0-9A-Fa-f:.]+)\): \d+, pid='?(?P<pid>\d+)")

_TELLS = (
    "Proxy Service",
    ", node ",
    "with PID",
    "global_rank_mapping=",
    "world_rank=",
    "global_ranks=",
)

# What stands in front of a line and differs in nothing but the time says the same.
_CLOCK = re.compile(
    rb"\d{1,4}[-/]\d\d?[-/]\d\d?[T ]?|\d\d:\d\d:\d\d(?:[.,]\d+)?|(?<![\w.])\d+\.\d{3,}(?![\w.])"
)


@dataclass(slots=True)
class Joins:
    """Look-ups from what one program knows to what another does."""

    by_pid: Processes = field(default_factory=Processes)
    by_pci: dict[str, Identity] = field(default_factory=dict)
    node_of_rank: dict[int, str] = field(default_factory=dict)
    node_of_address: dict[str, str] = field(default_factory=dict)
    seats: Seats = field(default_factory=Seats)
    world_size: int | None = None
    node_count: int | None = None
    """How many nodes the job was started on, where its launcher says so."""
    ranks_seen: set[int] = field(default_factory=set)
    nodes_seen: set[str] = field(default_factory=set)
    nodes_at_work: set[str] = field(default_factory=set)


def pci_key(address: str) -> str:
    """Normalise a PCI address: `0000:9B:00.0`, `PCI:0000:9b:00` and busId `9b000` give `9b:00`."""
    text = address.lower().removeprefix("pci:")
    if re.fullmatch(r"[0-9a-f]{3,12}", text):
        digits = text[:-1].rjust(4, "0")
        return f"{digits[-4:-2]}:{digits[-2:]}"
    parts = text.split(".")[0].split(":")
    return ":".join(parts[-2:])


@dataclass(slots=True)
class _Reading:
    """What is collected while the lines are read."""

    block: Identity | None = None
    per_node: int | None = None
    nodes: int | None = None
    on_gpu: list[tuple[str | None, str, int]] = field(default_factory=list)
    hosts: dict[int, dict[str, int]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(int))
    )


def build(case: Case) -> Joins:
    """Read the kept lines once for everything that ties identities together."""
    joins = Joins()
    reading = _Reading()
    for view in case.views:
        kept = view.survey.kept
        for number in view.numbers:
            # Cleaning a line costs more than finding out that it holds none of the words.
            text = view.text(number) if _WORDS.search(kept[number]) else None
            if text is not None:
                _read_text(text, view, number, joins, reading)
                if _INTRODUCED.search(kept[number]):
                    _introduce(text, joins)
        # Labels tie ranks to nodes; parsing every line is too slow for large logs, hits suffice.
        hits = sorted({h.line for h in view.survey.hits})
        fronts: set[bytes] = set()
        for number in view.numbers if len(view.numbers) <= 4000 else hits:
            front = _CLOCK.sub(b"", kept[number][:160]) if number in kept else b""
            front = b" ".join(front.split(None, 2)[:2])
            if front in fronts:
                continue
            fronts.add(front)
            line = view.line(number)
            if line is not None:
                _read_label(line, joins, reading)
    _conclude(joins, reading)
    return joins


def _read_text(text: str, view: LogView, number: int, joins: Joins, reading: _Reading) -> None:
    # Cheap words first: the regular expressions are worth it only on few lines.
    if "local_rank" in text or "exitcode" in text or "host " in text:
        reading.block = _elastic(text, reading.block, joins)
    if "nranks" in text:
        _nccl(text, view.line(number), joins)
    if ("Bootstrap" in text or "; OOB" in text) and (match := _ADDRESS.search(text)):
        line = view.line(number)
        if line is not None and line.node:
            joins.node_of_address.setdefault(match["address"], line.node)
    if any(word in text for word in _TELLS):
        _told(text, view.line(number), joins)
    if "pid=" in text and (match := _WORKER.search(text)):
        joins.by_pid.learn(int(match["pid"]), rank=int(match["rank"]))
    if "Xid" in text and (match := _XID_PID.search(text)):
        line = view.line(number)
        reading.on_gpu.append((line.node if line else None, match["pci"], int(match["pid"])))
    if "nproc" in text and (match := _NPROC.search(text)):
        reading.per_node = int(match["n"])
    if "nnodes" in text and (match := _NNODES.search(text)):
        reading.nodes = int(match["n"])
    if ("orld" in text or "nranks" in text or "WORLD" in text) and (match := _WORLD.search(text)):
        size = int(match["n"])
        if 1 < size <= 200_000:
            joins.world_size = max(joins.world_size or 0, size)


def _told(text: str, line: LogLine | None, joins: Joins) -> None:
    """Learn from the sentences in which a program says whose process or seat it speaks of."""
    if match := _MPI_PID.search(text):
        joins.by_pid.learn(int(match["pid"]), rank=int(match["rank"]), node=match["node"])
    elif match := _SEATED.search(text):
        joins.node_of_rank.setdefault(int(match["rank"]), match["node"])
    elif "global_rank_mapping=" in text:
        for rank, node in joins.seats.learn_mapping(text).items():
            joins.node_of_rank.setdefault(rank, node)
    elif "global_ranks=" in text:
        joins.seats.learn_own(text, line)
    elif match := _RAY_SEAT.search(text):
        rank, node = int(match["rank"]), match["node"]
        joins.by_pid.learn(int(match["pid"]), rank=rank, local_rank=int(match["local"]), node=node)
        joins.node_of_rank.setdefault(rank, node)
        joins.ranks_seen.add(rank)
        joins.nodes_seen.add(node)
        joins.nodes_at_work.add(node)
    elif match := _PROXY.search(text):
        if line is not None and line.pid is not None and line.rank is None:
            joins.by_pid.learn(line.pid, rank=int(match["rank"]), node=line.node)


def _introduce(text: str, joins: Joins) -> None:
    joins.seats.learn_agent(text)
    who, bus = identity_in(text) or (Identity(), None)
    if who.rank is None or who.node is None:
        return
    joins.ranks_seen.add(who.rank)
    joins.node_of_rank.setdefault(who.rank, who.node)
    joins.nodes_seen.add(who.node)
    joins.nodes_at_work.add(who.node)
    if who.pid is not None:
        joins.by_pid.learn(who.pid, rank=who.rank, node=who.node, gpu=who.gpu)
    if bus is not None:
        joins.by_pci.setdefault(f"{who.node}|{pci_key(bus)}", who)


def _read_label(line: LogLine, joins: Joins, reading: _Reading) -> None:
    if line.rank is not None:
        joins.ranks_seen.add(line.rank)
        if line.node:
            reading.hosts[line.rank][line.node] += 1
    if line.node and line.stream is not Stream.TOOL:
        joins.nodes_seen.add(line.node)
        if line.stream is not Stream.KERNEL:
            joins.nodes_at_work.add(line.node)
    if line.pid is not None and line.rank is not None:
        joins.by_pid.learn(line.pid, rank=line.rank, node=line.node)


def _conclude(joins: Joins, reading: _Reading) -> None:
    joins.node_count = reading.nodes
    for rank, seen in reading.hosts.items():
        joins.node_of_rank.setdefault(rank, max(sorted(seen), key=lambda n: seen[n]))
    if joins.world_size is None and reading.per_node and len(joins.nodes_seen) <= 1:
        joins.world_size = reading.per_node * (reading.nodes or 1)
    for node, pci, pid in reading.on_gpu:
        # The kernel names the process on a GPU in one line and not in another of the same address.
        identity = joins.by_pid.learn(pid, node=node)
        joins.by_pci.setdefault(f"{node or ''}|{pci_key(pci)}", identity)
    for identity in joins.by_pid:
        if identity.rank is not None and identity.node:
            joins.node_of_rank.setdefault(identity.rank, identity.node)


def _elastic(text: str, block: Identity | None, joins: Joins) -> Identity | None:
    match = _AGENT_PID.search(text)
    if match:
        joins.by_pid.learn(int(match["pid"]), local_rank=int(match["local"]))
        return block
    match = _BLOCK_HOST.search(text)
    if match and ":" in text:
        return Identity(node=match["host"])
    match = _BLOCK_RANK.search(text)
    if match:
        block = block or Identity()
        block.rank, block.local_rank = int(match["rank"]), int(match["local"])
        return block
    match = _BLOCK_PID.search(text)
    if match and block is not None and block.rank is not None:
        joins.by_pid.learn(
            int(match["pid"]), rank=block.rank, local_rank=block.local_rank, node=block.node
        )
        return None
    return block


def _nccl(text: str, line: object, joins: Joins) -> None:
    match = _NCCL_INIT.search(text)
    if match is None:
        return
    node = getattr(line, "node", None)
    pid = getattr(line, "pid", None)
    gpu = int(match["nvml"] or match["dev"])
    rank = int(match["rank"])
    identity = Identity(rank=rank, node=node, gpu=gpu, pid=pid)
    joins.by_pci.setdefault(f"{node or ''}|{pci_key(match['bus'])}", identity)
    joins.world_size = max(joins.world_size or 0, int(match["n"]))
    joins.ranks_seen.add(rank)
    if node:
        joins.node_of_rank.setdefault(rank, node)
    if pid is not None:
        joins.by_pid.learn(pid, rank=rank, node=node, gpu=gpu)


def find_pci(joins: Joins, address: str, node: str | None) -> Identity | None:
    """Return who used a PCI address: on that node, or on the only node that has the address."""
    key = pci_key(address)
    exact = joins.by_pci.get(f"{node or ''}|{key}")
    if exact is not None:
        return exact
    found = [v for k, v in joins.by_pci.items() if k.endswith(f"|{key}")]
    if len(found) != 1 or (node and found[0].node and found[0].node != node):
        return None
    return found[0]
