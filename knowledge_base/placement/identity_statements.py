"""What statements and labels tell of ranks, tasks, processes, hosts and addresses, one line at a time."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import field

from rerail.domain.evidence import LogLine, Stream
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.phrases import phrase
from rerail.knowledge_base.placement.host_aliases import HostAliases
from rerail.knowledge_base.placement.identities import MOST_RANKS, Identities
from rerail.knowledge_base.placement.names import lid_address, pci_key, same_host, short
from rerail.knowledge_base.placement.other_runs import OtherRuns
from rerail.knowledge_base.placement.own_words import node_in, number_in
from rerail.knowledge_base.placement.processes import Identity, pid_in_front
from rerail.knowledge_base.statements import Statement
from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy
from rerail.log_parsers.host_names import is_address, is_local, looks_like_host
from rerail.log_parsers.line_kinds import UNKNOWN
from rerail.log_parsers.prefixes import TASK
from rerail.log_parsers.text import ZERO
from rerail.log_parsers.view import LogView

MOST_TASKS = 65_536
_ALL_LABELS = 4_000  # lines of a file of which every label is read; of longer ones those of hits
_LONG, _FEW = 400, 64
_HEAD = 160  # bytes in front of a line in which its labels stand
_HOST_WORDS = (b"host", b"node", b"agent", b"machine", b"instance")
_NAMES_HOST = lazy(rb"(?i)\b(?:host|node|agent|machine|instance)")
# A process may print lines with its rank in front and lines without.
_RANK_IN_FRONT = lazy(rb"\[(?:[Rr]ank|RANK) ?\d{1,6}\]")
# What stands in front of a line and differs in nothing but the time says the same.
_CLOCK = lazy(
    rb"\d{1,4}[-/]\d\d?[-/]\d\d?[T ]?|\d\d:\d\d:\d\d(?:[.,]\d+)?|(?<![\w.])\d+\.\d{3,}(?![\w.])"
)


@dataclass(slots=True)
class Reading:
    """What is collected while the statements are read."""

    on_gpu: list[tuple[str | None, str, int]] = field(default_factory=list)
    hosts: dict[int, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    places: dict[str, dict[str, LogLine]] = field(default_factory=lambda: defaultdict(dict))
    """The hosts that the lines of a container, pod or replica name."""
    ranks_of_places: dict[int, dict[str, LogLine]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    """The containers, pods and replicas in which a process calls itself by a rank."""
    aliases: HostAliases = field(default_factory=HostAliases)
    labels: set[str] = field(default_factory=set)
    threads: dict[int, tuple[int, LogLine]] = field(default_factory=dict)
    """The lowest thread in front of the lines of a rank: its first one, which has the number of the process."""
    printed: dict[int, LogLine] = field(default_factory=dict)
    """Lines of ranks that are nothing but a name, as `srun -l hostname` prints them."""
    printed_by_tasks: dict[int, LogLine] = field(default_factory=dict)
    """The same of tasks that hold several ranks."""
    of_tasks: dict[int, set[tuple[int, int]]] = field(default_factory=lambda: defaultdict(set))
    """The local ranks and ranks that stand behind the number of a task."""
    tasks_of_ranks: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    """The tasks behind whose numbers a rank stands."""
    on_tasks: dict[int, dict[str, LogLine]] = field(default_factory=lambda: defaultdict(dict))
    """The hosts that stand behind the number of a task."""
    of_pods: dict[int, LogLine] = field(default_factory=dict)
    """Ranks that have the number of the pod in which they alone run."""
    looked_at: set[str] = field(default_factory=set)
    """Hosts at whose shell somebody looked at that host itself."""
    other_runs: OtherRuns = field(default_factory=OtherRuns)
    above: dict[str, str] = field(default_factory=dict)
    """The host that a map of the job named last, by file."""


def read(statement: Statement, found: Identities, reading: Reading) -> None:
    """Take over what one statement tells, by the kinds of its form."""
    kinds = statement.form.tells
    if "lost_node" in kinds and (node := statement.slots.get("node")):
        found.lost_nodes.setdefault(node, statement.line)
    if "set_aside" in kinds and (node := statement.slots.get("node")):
        found.set_aside.setdefault(node, statement.line)
    if "group_rank" in kinds and (rank := statement.number("rank")) is not None:
        found.ranks_heard.add(rank)
    if "looked_at" in kinds:
        reading.looked_at.add(statement.slots["node"])
    if "bystander" in kinds:
        found.onlookers.add(statement.slots["node"])
        found.nodes_seen.add(statement.slots["node"])
        found.nodes_at_work.add(statement.slots["node"])
    if "counted_pod" in kinds and (rank := statement.number("rank")) is not None:
        reading.of_pods.setdefault(rank, statement.line)
    if "job" in kinds:
        _job(statement, found)
    if "moved" in kinds:
        _move(statement, found)
    if kinds & {"host_above", "rank_below"}:
        _map(statement, found, reading)
    if "identity" in kinds:
        _learn(statement, found, reading)
    if "block" in kinds:
        _block(statement, found)


def _move(statement: Statement, found: Identities) -> None:
    """From here on the ranks of one host, or those that are listed, run on another."""
    left, listed = statement.slots.get("left"), set(numbers(statement.slots.get("ranks", "")))
    moved = {
        rank
        for rank, host in found.node_of_rank.items()
        if rank in listed or (left is not None and not listed and same_host(host, left))
    }
    found.moves.append((statement.line, frozenset(moved), statement.slots["node"]))


def _map(statement: Statement, found: Identities, reading: Reading) -> None:
    """A map of a job names a host, and below it its ranks."""
    file = statement.line.file
    if "host_above" in statement.form.tells:
        reading.above[file] = statement.slots["node"]
    number, host = statement.number("rank"), reading.above.get(file)
    if host is not None and number is not None and number <= MOST_RANKS:
        found.keep(found.node_of_rank, "rank", number, host, statement.line)
        found.nodes_seen.add(host)


def _block(statement: Statement, found: Identities) -> None:
    """The ranks from the first of a host on, where its launcher counts them one after the other."""
    rank, local = statement.number("rank"), statement.number("local")
    node = statement.slots.get("node")
    if rank is None or local is None or not node or is_local(node) or not 0 < local <= rank:
        return
    for other in range(rank - local, rank):
        found.keep(found.node_of_rank, "rank", other, node, statement.line)


def _job(statement: Statement, found: Identities) -> None:
    found.per_node = statement.number("per_node") or found.per_node
    if listed := statement.slots.get("ranks"):  # all of them, on one host
        found.world_size, found.node_count = len(numbers(listed)), 1
    world, nodes = statement.number("world"), statement.number("nodes")
    if "evenly" in statement.form.tells and world and nodes and world % nodes == 0:
        found.per_node = world // nodes
    if (last := statement.number("last_device")) is not None:
        found.most_per_node = max(last + 1, found.most_per_node or 0)
    found.job_nodes = statement.number("job_nodes") or found.job_nodes
    found.node_count = statement.number("nodes") or found.node_count or found.job_nodes
    found.tasks_per_node = statement.number("tasks_per_node") or found.tasks_per_node
    node = statement.slots.get("node") or statement.line.node or node_in(statement.line.message)
    number = statement.number("node_rank")
    task = phrase("task-of-launcher").match(statement.line.text)
    if task and (number is not None or (statement.number("per_node") or 1) > 1):
        found.launcher_tasks.update(int(one) for one in task.groups() if one)
    if number is not None:
        found.launchers.add(number)
    if number is not None and not statement.line.label:
        found.node_ranks_of_log.setdefault(statement.line.file, set()).add(number)
    if node and number is not None:
        found.node_ranks.setdefault(node, number)
        found.told_by.setdefault(("node rank", node), statement.line)
    _world(statement, found)


def _world(statement: Statement, found: Identities) -> None:
    size = statement.number("world")
    if size is not None and 1 < size <= MOST_RANKS:
        found.world_size = max(found.world_size or 0, size)


def _learn(statement: Statement, found: Identities, reading: Reading) -> None:
    """Join the names of one statement; those of a writer with the label of its line."""
    line, slots = statement.line, statement.slots
    who = _who(statement, found)
    node = who.node
    _world(statement, found)
    if node and statement.form.about == "writer" and (task := _task_of(line)) is not None:
        reading.on_tasks[task].setdefault(node, line)
    if who.rank is not None and line.place and statement.form.about == "writer":
        reading.ranks_of_places[who.rank].setdefault(line.place, line)
    if address := slots.get("address"):
        found.keep(found.node_of_address, "address", address, node, line)
    if lid := slots.get("lid"):
        found.keep(found.node_of_address, "address", lid_address(lid), node, line)
    if statement.form.about == "writer" or "own_host" in statement.form.tells:
        reading.aliases.told(line.node, slots.get("node"), line)
    if statement.form.about == "writer" and line.place and "node" in slots:
        found.keep(found.node_of_place, "place", line.place, node, line)
    for slot in ("container", "pod", "place"):
        if place := slots.get(slot):
            found.keep(found.node_of_place, "place", place, node, line)
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
        node = _own_name(node, line, found)
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


def _own_name(node: str | None, line: LogLine, found: Identities) -> str | None:
    """Return what a writer's host is called: by the label of its line, where it says of itself an address alone."""
    label = line.node
    if node is None or label is None or not is_address(node) or is_local(node) or is_address(label):
        return node or label
    found.keep(found.node_of_address, "address", node, label, line)
    return label


def _tasks(listed: list[int], node: str | None, line: LogLine, found: Identities) -> None:
    found.tasks_are_ranks = found.tasks_are_ranks or len(listed) > 1
    for task in listed:
        found.keep(found.node_of_task, "task", task, node, line)


def _process(
    who: Identity, pci: str | None, line: LogLine, found: Identities, reading: Reading
) -> None:
    if pci is not None and who.rank is None:
        if who.pid is not None:
            reading.on_gpu.append((who.node, pci, who.pid))
        elif who.gpu is not None:
            host = short(who.node or line.node or "")
            found.gpu_of_pci.setdefault((host, pci_key(pci)), who.gpu)
        return
    if pci is not None:
        found.by_pci.setdefault(f"{who.node or ''}|{pci_key(pci)}", who)
    found.learn(who, line)


def _seats(statement: Statement, text: str, found: Identities) -> None:
    """The ranks of one place; those of a later round replace those of an earlier one."""
    ranks = tuple(numbers(text))
    node = statement.slots.get("node")
    place = node or statement.line.node or statement.line.place
    if place is None:
        known = found.ranks_of_log.setdefault(statement.line.file, ranks)
        if known != ranks:
            found.ranks_of_log[statement.line.file] = ()
        return
    found.ranks_at[place] = ranks
    if node is None:
        return
    found.gpus_in_order.add(node)
    found.nodes_seen.add(node)
    found.nodes_at_work.add(node)
    for rank in ranks:
        found.keep(found.node_of_rank, "rank", rank, node, statement.line)


def numbers(text: str) -> list[int]:
    """Return the numbers of a list with ranges: "0-2,5" is 0, 1, 2 and 5."""
    found: list[int] = []
    for part in text.strip("[]").split(","):
        first, _, last = part.strip("[] ").partition("-")
        if first.isdigit():
            end = int(last) if last.isdigit() else int(first)
            found += range(int(first), min(end, int(first) + MOST_TASKS) + 1)
    return found


def introduce(line: LogLine, who: Identity, found: Identities) -> None:
    """A line on which a process gives its rank, host and id is believed as a whole."""
    if who.rank is None or who.node is None:
        return
    found.ranks_seen.add(who.rank)
    found.keep(found.node_of_rank, "rank", who.rank, who.node, line)
    found.nodes_seen.add(who.node)
    found.nodes_at_work.add(who.node)
    if who.pid is not None:
        found.by_pid.learn(who.pid, rank=who.rank, node=who.node, gpu=who.gpu)


def read_labels(case: Case, view: LogView, found: Identities, reading: Reading) -> None:
    """Labels tie ranks to nodes; parsing every line is too slow for large logs, hits suffice."""
    kept = view.survey.kept
    hits = None if len(view.numbers) <= _ALL_LABELS else {h.line for h in view.survey.hits}
    kinds = case.kinds.of(view)
    host_named = case.kinds.answers(_names_host, _names_host)
    fronts: set[bytes] = set()
    naming: Counter[bytes] = Counter()
    pieces: dict[int, tuple[slice, ...]] = {}
    for number, kind in zip(view.numbers, kinds, strict=True):
        if hits is not None and number not in hits:
            continue
        head = kept[number][:_HEAD]
        at = pieces.get(kind)
        if at is None:
            at = _told_in(head.translate(ZERO))
            if kind != UNKNOWN:
                pieces[kind] = at
        front = b" ".join([head[one] for one in at])
        if front in fronts and not (
            host_named[kind] and _may_introduce(kept[number][:_LONG], naming)
        ):
            continue
        fronts.add(front)
        line = view.line(number)
        if line is not None:
            _read_label(line, found, reading)


def _told_in(zeroed: bytes) -> tuple[slice, ...]:
    """Return where the first two words and the rank stand in a head whose digits are zeros, without the time."""
    clocks = [match.span() for match in _CLOCK.finditer(zeroed)]
    pieces = list(
        zip([0, *(b for _, b in clocks)], [*(a for a, _ in clocks), len(zeroed)], strict=True)
    )
    text = b"".join([zeroed[a:b] for a, b in pieces])
    words, end = [], 0
    for word in text.split(None, 2)[:2]:
        start = text.index(word, end)
        words.append((start, end := start + len(word)))
    rank = _RANK_IN_FRONT.search(text)
    found: list[slice] = []
    for start, end in [*words, *([rank.span()] if rank else [])]:
        before = 0  # how much of the text stands in front of the piece
        for a, b in pieces:
            first, last = max(start - before, 0), min(end - before, b - a)
            if first < last:
                found.append(slice(a + first, a + last))
            before += b - a
    return tuple(found)


def _names_host(text: bytes) -> bool:
    """Tell whether the beginning of a line holds a word for a host."""
    head = text[:_LONG]
    small = head.lower()
    return any(word in small for word in _HOST_WORDS) and _NAMES_HOST.search(head) is not None


def _may_introduce(raw: bytes, seen: Counter[bytes]) -> bool:
    """Tell whether a line may say where its writer runs; of lines that differ in numbers alone a few tell."""
    if not _names_host(raw):
        return False
    same = raw.translate(ZERO)
    seen[same] += 1
    return seen[same] <= _FEW


def same_process(line: LogLine, found: Identities) -> None:
    """Learn that the address and the host in front of a line are one, where each stands beside the same process id."""
    parts = line.label.split("/")
    if line.pid is None or parts.count(f"p{line.pid}") < 2 or not line.node:
        return
    addresses = [part for part in parts if is_address(part)]
    if len(addresses) == 1 and not is_address(line.node):
        found.keep(found.node_of_address, "address", addresses[0], line.node, line)


def _read_label(line: LogLine, found: Identities, reading: Reading) -> None:
    reading.labels |= {name for name in (line.node, line.place) if name}
    reading.aliases.told(line.alias, line.node, line)
    if line.rank is not None:
        found.ranks_seen.add(line.rank)
        if line.place:
            reading.ranks_of_places[line.rank].setdefault(line.place, line)
        if line.node:
            reading.hosts[line.rank][line.node] += 1
            found.told_by.setdefault(("label", line.rank), line)
    if (task := _task_of(line)) is not None:
        _read_task(line, task, reading)
    if not line.node and looks_like_host(line.message):
        _names_alone(line, task, reading)
    if line.place and not line.node and (host := node_in(line.message)):
        reading.places[line.place].setdefault(host, line)
    if line.node and line.stream is not Stream.TOOL:
        found.nodes_seen.add(line.node)
        if line.stream is not Stream.KERNEL:
            found.nodes_at_work.add(line.node)
    if line.rank is not None:
        _read_process(line, line.rank, found, reading)


def _read_task(line: LogLine, task: int, reading: Reading) -> None:
    """Take what stands behind the number of a task that holds several ranks."""
    if line.rank is not None:
        reading.tasks_of_ranks[line.rank].add(task)
        if line.local_rank is not None:
            reading.of_tasks[task].add((line.local_rank, line.rank))
    if line.node:
        reading.on_tasks[task].setdefault(line.node, line)


def _read_process(line: LogLine, rank: int, found: Identities, reading: Reading) -> None:
    """Take the process in front of a rank's line, or its thread."""
    if line.pid is not None:
        found.by_pid.learn(line.pid, rank=rank, node=line.node)
    elif (thread := pid_in_front(line)) is not None:
        known = reading.threads.get(rank)
        if known is None or thread < known[0]:
            reading.threads[rank] = thread, line


def learn_threads(found: Identities, reading: Reading) -> None:
    """Take the first thread of each rank for its process."""
    for rank, (thread, line) in reading.threads.items():
        found.by_pid.learn(thread, rank=rank, node=line.node)


def read_locals(case: Case, found: Identities) -> None:
    """Take the ranks that lines of local ranks call themselves."""
    told = [o.line for o in case.observations]
    if not any(map(_of_a_local, told)):
        return
    for view in case.views:
        told += filter(None, map(view.line, case.lines_with(view, "calls-a-rank")))
    for line in filter(_of_a_local, told):
        if (own := number_in(line.message, "rank")) is not None:
            found.ranks_of_locals.setdefault(line.local_rank or 0, set()).add(own)


def _of_a_local(line: LogLine) -> bool:
    """Tell whether a local rank, and no rank or host, stands in front of a line."""
    return line.local_rank is not None and line.rank is None and not (line.node or line.place)


def _names_alone(line: LogLine, task: int | None, reading: Reading) -> None:
    """Take a line that is nothing but a name."""
    if line.rank is not None:
        reading.printed[line.rank] = line
    elif task is not None:
        reading.printed_by_tasks[task] = line


def _task_of(line: LogLine) -> int | None:
    """Return the number of the task in front of a line, where a task holds several ranks."""
    names = (name for name in line.label.split("/") if name.startswith(TASK))
    return next(
        (int(name.removeprefix(TASK)) for name in names if name[len(TASK) :].isdigit()), None
    )
