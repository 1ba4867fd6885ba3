"""How the processes ended: exit codes and signals from launchers, schedulers and the kernel.

An exit is the weakest evidence: it is used when nothing says why. A process that was terminated by
its launcher after another one failed is a consequence, so only the first odd exit counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from rerail.domain.evidence import Blames, LogLine, Observation, Role, Tier
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.catalogues import how_it_ended
from rerail.knowledge_base.causality.progress import last_command, without_outlived
from rerail.knowledge_base.placement.allocation import (
    elsewhere,
    listed,
    nodes,
    only_node_of,
    schemes_of,
)
from rerail.knowledge_base.placement.headings import named_above
from rerail.knowledge_base.placement.identities import Identities
from rerail.knowledge_base.placement.names import same_host, short
from rerail.knowledge_base.placement.one_node import node_around, one_node
from rerail.knowledge_base.placement.rank_of_local import (
    devices_of_processes,
    rank_in_block,
    ranks_of_a_host,
)
from rerail.knowledge_base.statements import Statement
from rerail.late_dataclass import dataclass
from rerail.log_parsers.timestamps import find_stamp

SIGNALS = {"killed": 9, "out of memory": 9, "segmentation fault": 11, "aborted": 6, "bus error": 7, "terminated": 15,
           "illegal instruction": 4, "floating point exception": 8, "floating-point exception": 8,
           "trace/breakpoint trap": 5, "hangup": 1, "interrupt": 2}  # fmt: skip
_LONG_BEFORE_S = 60.0  # watchdogs of one job give up within seconds of each other
_SKEW_S = 2.0
"""By how much the clocks of two hosts may differ; torchrun writes full seconds."""
_SIGNAL_NAMES = {"SIGHUP": 1, "SIGINT": 2, "SIGQUIT": 3, "SIGILL": 4, "SIGTRAP": 5, "SIGABRT": 6, "SIGBUS": 7,
                 "SIGFPE": 8, "SIGKILL": 9, "SIGUSR1": 10, "SIGSEGV": 11, "SIGUSR2": 12, "SIGPIPE": 13,
                 "SIGTERM": 15, "KILL": 9, "ABRT": 6, "SEGV": 11, "BUS": 7, "TERM": 15}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ExitFact:
    """One process that ended, as one line says it. `code` is negative for a signal."""

    code: int
    line: LogLine
    rank: int | None = None
    local_rank: int | None = None
    node: str | None = None
    pid: int | None = None
    root_block: bool = False
    spawned: bool = False
    ended: float | None = None
    """When, in seconds since the epoch by the clock of its host, as torchrun's table says it."""
    several: bool = False
    """The line tells of several processes at once."""
    told: bool = True
    """The line tells how it ended, and not only that it did."""

    @property
    def how(self) -> str:
        """How the process ended, as far as its code tells: ordered, aborted, killed, crashed, plain or own."""
        return how_it_ended(self.code)

    @property
    def of_one_process(self) -> bool:
        """Whether one process is reported, by its process id or local rank."""
        return self.local_rank is not None or self.pid is not None


def one_ended(facts: Sequence[ExitFact]) -> bool:
    """Tell whether exactly one process was killed or crashed."""
    return sum(fact.how in ("killed", "crashed") for fact in facts) == 1


def collect(case: Case, identities: Identities, statements: Sequence[Statement]) -> list[ExitFact]:
    """Return the exits that launchers and shells report, in the order of time."""
    of_line: dict[tuple[str, int], Statement] = {}
    for statement in statements:
        if "exit" in statement.form.tells:
            of_line.setdefault((statement.line.file, statement.line.number), statement)
    tasks_are_ranks = identities.tasks_are_ranks or not (
        _launched_per_node(case)
        or _elsewhere(identities)
        or _more_ranks_than_tasks(case, identities)
        or case.says("job-of-several-parts")
        or _counted_anew(of_line.values())
    )
    own = nodes(case, identities)
    schemes = schemes_of(own)
    facts = [
        fact
        for statement in of_line.values()
        if (fact := _fact(statement, identities, tasks_are_ranks)) is not None
        and not elsewhere(fact.node, own, schemes)
        and (fact.told or not _lost_another(case, fact))
    ]
    if any(
        fact.pid is not None and fact.rank is None and fact.local_rank is None for fact in facts
    ):
        devices = devices_of_processes(case)
        facts = [_at_its_device(fact, devices) for fact in facts]
    # Accounting and containers tell of whole jobs; who names a process knows better.
    if not facts:
        told = _from_rules(case, identities)
        facts = [
            fact
            for fact in told
            if not elsewhere(fact.node, own, schemes) and not _of_launcher(case, fact)
        ]
    return _in_time(case, facts)


def _counted_anew(statements: Iterable[Statement]) -> bool:
    """Tell whether one task ends on several hosts: a step of several parts counts the tasks of each part from 0 on."""
    hosts: dict[str, set[str]] = defaultdict(set)
    for one in statements:
        if (task := one.slots.get("tasks", "")).isdigit() and (node := one.slots.get("node")):
            hosts[task].add(short(node))
    return any(len(named) > 1 for named in hosts.values())


def _fact(statement: Statement, identities: Identities, tasks_are_ranks: bool) -> ExitFact | None:
    slots, line = statement.slots, statement.line
    code = _ended(slots)
    if code == 0:
        return None
    pid, rank = statement.number("pid"), statement.number("rank")
    own_host = "own_host" in statement.form.tells
    node = slots.get("node") or (line.node if own_host else None)
    if tasks := slots.get("tasks"):
        rank = int(tasks) if tasks.isdigit() and tasks_are_ranks else None
    elif statement.form.about == "writer":
        rank, node = line.rank if rank is None else rank, line.node
    elif rank is None and pid is not None:
        who = identities.by_pid.get(pid, line.node)
        rank = who.rank if who else None
        if rank is None and "of_a_rank" in statement.form.tells:
            return None  # a helper of the framework may have ended
        node = node or (who.node if who else None) or line.node
    local = statement.number("local")
    last = statement.number("last_local")
    if last is not None and (last == 0 or last < ranks_of_a_host(identities) - 1):
        local = last
    if local is None and rank is None and statement.form.about == "writer":
        local = line.local_rank
    if rank is None and local is not None:
        where = node or line.node
        seats = identities.seats(where, line)
        rank = seats[local] if local < len(seats) else rank_in_block(identities, where, local)
        who = identities.by_pid.get(pid, where) if rank is None and pid is not None else None
        if who is not None and who.local_rank == local:
            rank = who.rank  # the launcher's table names the same process
    stamp = find_stamp(f"time : {slots['time']}", year=1970) if "time" in slots else None
    return ExitFact(
        code, line, rank, local, node, pid,
        root_block="root" in slots, spawned=_is_child(statement, local),
        ended=stamp.seconds if stamp else None, several=bool(tasks and not tasks.isdigit()),
        told=not slots.keys().isdisjoint(("code", "signal", "word")),
    )  # fmt: skip


def _lost_another(case: Case, fact: ExitFact) -> bool:
    """Tell whether a process of which is only told that it ended said itself that it had lost another."""
    return fact.pid is not None and any(
        o.line.pid == fact.pid and o.line.node == fact.node for o in case.with_role(Role.CASCADE)
    )


def _of_launcher(case: Case, fact: ExitFact) -> bool:
    """Tell whether a launcher ended that had started the ranks elsewhere."""
    of_one = fact.rank is not None or fact.of_one_process
    return not of_one and named_above(case, fact.line, "launcher") is not None


def _at_its_device(fact: ExitFact, devices: dict[int, int]) -> ExitFact:
    """Return an exit with the local rank of its process, where NCCL numbers the devices of all processes of a host."""
    known = fact.rank is not None or fact.local_rank is not None or fact.pid is None
    return fact if known else replace(fact, local_rank=devices.get(fact.pid or 0))


def _is_child(statement: Statement, local: int | None) -> bool:
    """Tell whether only the number of a child on its own node is known, which is a rank where there is one node."""
    if statement.form.about == "writer":
        return local is not None and statement.line.rank is None
    return set(statement.slots) <= {"local", "signal", "code"} and "local" in statement.slots


def _ended(slots: dict[str, str]) -> int:
    """Return the exit code of a statement, negative for a signal; 1 where it only says that it failed."""
    if code := slots.get("code"):
        return _as_signal(int(code)) if "tasks" in slots else int(code)
    named = slots.get("signal") or slots.get("word")
    if named is None:
        return 1
    return -_signal_number(named)


def _as_signal(code: int) -> int:
    return -(code - 128) if code - 128 in (6, 7, 9, 11, 15) else code


def _signal_number(named: str) -> int:
    if named.isdigit():
        return int(named)
    return _SIGNAL_NAMES.get(named.upper()) or SIGNALS.get(named.strip().lower(), 0)


def _in_time(case: Case, facts: list[ExitFact]) -> list[ExitFact]:
    """Sort exits by the clock, else by their place in their file; the names of files decide nothing.

    An exit without a time of its own is as old as the one above it: the times inside torchrun's
    tables are those of several hosts.
    """
    times: dict[tuple[str, int], float] = {}
    for direction in (1, -1):
        last: dict[str, float] = {}
        for fact in facts[::direction]:
            file, number = fact.line.file, fact.line.number
            time = times.get((file, number), _told_at(case, fact.line))
            if time is None:
                time = last.get(file)
            if time is not None:
                times[file, number] = last[file] = time

    def key(fact: ExitFact) -> tuple[float, int, str]:
        line = fact.line
        return times.get((line.file, line.number), float("inf")), line.number, line.text

    return sorted(facts, key=key)


def _told_at(case: Case, line: LogLine) -> float | None:
    """Return when a line was told, by its own time or by that of the line right above, which it goes on."""
    own = case.time(line)
    above = case.view(line).line(line.number - 1) if own is None else None
    return own if above is None or above.node != line.node else case.time(above)


def _from_rules(case: Case, identities: Identities) -> list[ExitFact]:
    """Return the exits that only the rules of launchers, containers and accounting know."""
    facts = []
    for observation in case.observations:
        if observation.tier is not Tier.EXIT or observation.role not in (
            Role.CONTEXT,
            Role.TEARDOWN,
        ):
            continue
        line = observation.line
        code = _code(observation)
        if not code:
            continue
        fields = observation.fields
        pid = int(fields["pid"]) if fields.get("pid", "").isdigit() else None
        identity = identities.by_pid.get(pid, line.node) if pid is not None else None
        rank = int(fields["rank"]) if fields.get("rank", "").isdigit() else None
        if rank is None:
            rank = identity.rank if identity and identity.rank is not None else line.rank
        # A controller tells of what ran elsewhere.
        by_another = observation.blames is Blames.NOBODY
        own = only_node_of(case, line) if by_another else line.node
        facts.append(ExitFact(code, line, rank, node=fields.get("node") or own, pid=pid))
    return facts


def _code(observation: Observation) -> int | None:
    """Return the exit code that a rule found on its line, negative for a signal."""
    code = observation.fields.get("exitcode")
    if code is not None and code.lstrip("-").isdigit():
        return _as_signal(int(code))
    signal = observation.fields.get("signal")
    return (-_signal_number(signal) or None) if signal is not None else None


def _elsewhere(identities: Identities) -> bool:
    """Tell whether a rank is known to run on another host than the task of its number."""
    return any(
        not same_host(identities.host(where), identities.host(identities.node_of_rank[task]))
        for task, where in identities.node_of_task.items()
        if task in identities.node_of_rank
    )


def _more_ranks_than_tasks(case: Case, identities: Identities) -> bool:
    """Tell whether a rank is higher than the tasks go that the scheduler started on the job's nodes."""
    tasks = len(listed(case)) * (identities.tasks_per_node or 0)
    return 0 < tasks <= max(identities.ranks_seen, default=0)


def _launched_per_node(case: Case) -> bool:
    """Tell whether a launcher sits between srun and the ranks; then a task is a node, not a rank."""
    elastic = any(view.origin.attempt is not None for view in case.views)
    return elastic or case.says("launched-per-node")


def first_odd(facts: list[ExitFact]) -> ExitFact | None:
    """Return the exit that best stands for the failure: the first that no launcher caused.

    SIGTERM (and the SIGKILL that a launcher sends after it) is what the survivors get, and an
    abort is what NCCL does to itself; they count only when nothing else is there. Beside a process that
    crashed, those that were killed were killed for it: launchers list them by rank, and not by time.
    """
    if not facts:
        return None
    killed = int(any(fact.how == "crashed" for fact in facts))

    def weight(fact: ExitFact) -> int:
        return {"ordered": 3, "aborted": 2, "killed": killed}.get(fact.how, 0)

    # Several lines describe the same death; the one that knows the rank is the best of them.
    best = min(range(len(facts)), key=lambda i: (weight(facts[i]), i))
    same = [
        f
        for f in facts
        if f.code == facts[best].code and (f.pid is None or f.pid == facts[best].pid)
    ]
    chosen = next((f for f in same if f.rank is not None), facts[best])
    return _earliest([f for f in facts if weight(f) == weight(chosen)], chosen)


def ended_first(facts: Sequence[ExitFact]) -> ExitFact | None:
    """Return the process that by torchrun's tables ended alone on its host before those of all other hosts, or None.

    By their clocks the others must be later by more than these may differ.
    """
    timed = [(f.ended, f) for f in facts if f.ended is not None and f.how != "ordered"]
    if not timed:
        return None
    at, first = min(timed, key=lambda one: (one[0], one[1].rank or 0))
    there = {f.rank for _, f in timed if f.node == first.node}
    elsewhere = [ended for ended, f in timed if f.node != first.node]
    alone = len(there) == 1 and first.rank is not None and first.node is not None
    return first if alone and elsewhere and min(elsewhere) - at > _SKEW_S else None


def ended_before_waits(
    case: Case, facts: Sequence[ExitFact], waits: Sequence[LogLine], identities: Identities
) -> ExitFact | None:
    """Return the first abort that its clock and its file show before all that waited in vain, on the only such host.

    NCCL aborts a rank because it waited; one that is gone before anybody gave up, and said nothing of waiting, is why
    they waited.
    """
    hosts = {identities.node_of(line) for line in waits}
    early = [f for f in facts if f.how == "aborted" and _before_all(case, f, waits)]
    nodes = {f.node for f in early}
    if not waits or None in hosts or None in nodes or len(nodes) != 1 or nodes & hosts:
        return None
    first = early[0]
    silent = not any(
        o.role not in (Role.BENIGN, Role.TEARDOWN)
        and o.line.rank is not None
        and (o.line.rank == first.rank or identities.node_of(o.line) == first.node)
        for o in case.observations
    )
    return first if silent else None


def _before_all(case: Case, fact: ExitFact, lines: Sequence[LogLine]) -> bool:
    """Tell whether a process ended before all lines, by its own clock too where they tell a time."""
    ended = case.time(fact.line)
    times = [time for line in lines if (time := case.time(line)) is not None]
    ordered = all(fact.line.file == line.file and fact.line.number < line.number for line in lines)
    return ended is not None and ordered and all(time - ended > _LONG_BEFORE_S for time in times)


def _earliest(rivals: list[ExitFact], chosen: ExitFact) -> ExitFact:
    """Return which of the processes in torchrun's tables ended first: each host tells only of its own.

    Within a host it is the one that torchrun calls the root cause; between hosts the clocks decide,
    where they differ by more than they may be wrong.
    """
    if chosen.ended is None:
        return chosen
    timed = [f for f in rivals if f.ended is not None]
    first = min(timed, key=lambda f: (f.ended or 0.0, not f.root_block))
    if first.node != chosen.node and chosen.ended - (first.ended or 0.0) <= _SKEW_S:
        first = chosen
    own = [f for f in timed if f.node == first.node and f.ended == first.ended and f.root_block]
    return next(iter(own), first)


def on_one_node(fact: ExitFact, identities: Identities) -> ExitFact:
    """Where labels show the ranks of a single node, or its one process its children, a local rank is a rank.

    What tells no host ended on the node that is known to be the only one.
    """
    local = fact.local_rank
    if fact.node is None and fact.line.node is None:
        known = fact.rank if fact.rank is not None else local
        fact = replace(fact, node=node_around(identities, [known or 0]))
    if fact.rank is None and local is not None and one_node(identities, local):
        return replace(fact, rank=local)
    return fact


def of_last_attempt(
    case: Case, starts: Sequence[Observation], facts: Iterable[ExitFact]
) -> list[ExitFact]:
    """Return the exits behind the last start of the job, and behind the last command of a file, that no step outlived."""
    cuts = {view.name: last_command(case, view) for view in case.views}
    cuts |= {start.line.file: start.line.number for start in starts}
    return without_outlived(case, (f for f in facts if f.line.number > cuts.get(f.line.file, 0)))
