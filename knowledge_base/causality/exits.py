"""How the processes ended: exit codes and signals from launchers, schedulers and the kernel.

An exit is the weakest evidence: it is used when nothing says why. A process that was terminated by
its launcher after another one failed is a consequence, so only the first odd exit counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rerail.domain.evidence import LogLine, Observation, Role, Tier
from rerail.knowledge_base.causality.case import Case
from rerail.knowledge_base.causality.joins import Joins
from rerail.log_parsers.timestamps import find_stamp

SIGNALS = {"killed": 9, "out of memory": 9, "segmentation fault": 11, "aborted": 6, "bus error": 7, "terminated": 15,
           "illegal instruction": 4, "floating point exception": 8, "floating-point exception": 8,
           "trace/breakpoint trap": 5, "hangup": 1, "interrupt": 2}  # fmt: skip
_AGENT = re.compile(
    r"failed \(exitcode: (?P<code>-?\d+)\)(?: local_rank: (?P<local>\d+))? \(pid: (?P<pid>\d+)\)"
)
_SRUN = re.compile(
    r"(?:srun: error: )?(?P<node>[\w.-]+): tasks? (?P<tasks>[\d,-]+): (?:Exited with exit code (?P<code>\d+)|"
    r"(?P<word>[A-Z][A-Za-z/ -]+?))(?: \(core dumped\))?\s*$"
)
_MPI = re.compile(
    r"process rank (?P<rank>\d+) with PID \d+ on node (?P<node>\S+) exited on signal (?P<signal>\d+)"
)
_MPI_CODE = re.compile(
    r"process rank (?P<rank>\d+)[^.]* exit(?:ed|ing)[^.]*?(?:status|code)\D{0,10}(?P<code>\d+)"
)
# mpirun, prterun and horovodrun name the first process that failed in a block of two lines.
_MPI_NAME = re.compile(r"^\s*Process name: (?:\[\[\d+,\d+\],)?(?P<rank>\d+)\]?\s*$")
_MPI_EXIT = re.compile(r"^\s*Exit code:\s+(?P<code>-?\d+)\s*$")
# prterun breaks its sentence before the signal.
_MPI_ON = re.compile(r"process rank (?P<rank>\d+) with PID \d+ on node (?P<node>\S+) exited on\s*$")
_MPI_SIGNAL = re.compile(r"^\s*signal (?P<signal>\d+) \(")
# Hydra (MPICH, Intel MPI) prints a box: the host in one line, the code in the next.
_HYDRA_AT = re.compile(r"^=\s+(?:RANK (?P<rank>\d+) )?PID \d+ RUNNING AT (?P<node>\S+)\s*$")
_HYDRA_CODE = re.compile(
    r"^=\s+(?:EXIT CODE: (?P<code>\d+)|KILLED BY SIGNAL: (?P<signal>\d+).*)\s*$"
)
# PALS, Composer and Paddle name the rank in one line.
_PALS = re.compile(
    r"(?P<node>[\w.-]+): rank (?P<rank>\d+) (?:exited with code (?P<code>\d+)|died from signal (?P<signal>\d+))"
)
_COMPOSER = re.compile(r"Rank (?P<rank>\d+) crashed with exit code (?P<code>-?\d+)")
_PADDLE = re.compile(r"the trainer process with rank=\[(?P<rank>\d+)\] was aborted")
_PADDLE_POD = re.compile(r"Container rank (?P<rank>\d+) status failed .*\bcode (?P<code>-?\d+)\b")
# torch.multiprocessing.spawn counts its children; on one node a child's number is the rank.
_SPAWN = re.compile(
    r"(?:^|[\s:])process (?P<index>\d+) terminated with (?:signal (?P<signal>SIG[A-Z0-9]+)|exit code (?P<code>\d+))"
)
_DEEPSPEED = re.compile(r"exits with return code = (?P<code>-?\d+)")
_BLOCK_CODE = re.compile(r"^\s*exitcode\s*: (?P<code>-?\d+) \(pid: (?P<pid>\d+)\)")
_BLOCK_RANK = re.compile(r"^\s*rank\s*: (?P<rank>\d+) \(local_rank: (?P<local>\d+)\)")
_BLOCK_TIME = re.compile(r"^\s*time\s*: (?=\d{4}-\d\d-\d\d_)")
_BLOCK_HOST = re.compile(r"^\s*host\s*: (?P<host>\S+)")
_BASH = re.compile(
    r"line \d+: +(?P<pid>\d+) (?P<word>Killed|Aborted|Segmentation fault|Bus error|Terminated)\b"
)

_SKEW_S = 2.0
"""By how much the clocks of two hosts may differ; torchrun writes full seconds."""
_TELLING = ("exit", "task", "rank ", "host ", "time ", "line ", "signal", "process name", "running at",
            "trainer process")  # fmt: skip
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


@dataclass(slots=True)
class _Block:
    """What the lines of a block said so far: torchrun and mpirun spread one exit over several."""

    in_root: bool = False
    rank: int | None = None
    local: int | None = None
    host: str | None = None
    ended: float | None = None
    mpi_rank: int | None = None

    def takes(self, message: str) -> bool:
        """Keep what a line says that opens or continues a block."""
        if m := _MPI_ON.search(message):
            self.mpi_rank, self.host = int(m["rank"]), m["node"]
        elif m := _HYDRA_AT.search(message):
            self.mpi_rank = int(m["rank"]) if m["rank"] else None
            self.host = m["node"]
        elif m := _MPI_NAME.search(message):
            self.mpi_rank = int(m["rank"])
        elif _BLOCK_TIME.match(message):
            stamp = find_stamp(message, year=1970)
            self.ended = stamp.seconds if stamp else None
        elif m := _BLOCK_HOST.search(message):
            self.host = m["host"]
        elif m := _BLOCK_RANK.search(message):
            self.rank, self.local = int(m["rank"]), int(m["local"])
        else:
            return False
        return True

    def closed_by(self, line: LogLine) -> ExitFact | None:
        """Return the exit of the block if this line, with the code, ends it."""
        message = line.message
        if self.mpi_rank is not None and (m := _MPI_SIGNAL.search(message)):
            fact = ExitFact(-int(m["signal"]), line, self.mpi_rank, node=self.host)
            self.mpi_rank = self.host = None
            return fact
        if self.mpi_rank is not None and (m := _MPI_EXIT.search(message)):
            fact = ExitFact(int(m["code"]), line, self.mpi_rank)
            self.mpi_rank = None
            return fact
        if self.host is not None and (m := _HYDRA_CODE.search(message)):
            code = -int(m["signal"]) if m["signal"] else int(m["code"])
            fact = ExitFact(code, line, self.mpi_rank, node=self.host)
            self.mpi_rank = self.host = None
            return fact
        if m := _BLOCK_CODE.search(message):
            code, pid = int(m["code"]), int(m["pid"])
            fact = ExitFact(
                code, line, self.rank, self.local, self.host, pid, self.in_root, ended=self.ended
            )
            self.rank = self.local = self.host = self.ended = None
            self.in_root = False
            return fact
        return None


def collect(case: Case, joins: Joins) -> list[ExitFact]:
    """Return the exits that the kept lines report, in evidence order."""
    facts: list[ExitFact] = []
    many_tasks = any(
        "-" in (m["tasks"]) or "," in m["tasks"]
        for view in case.views
        for number in view.numbers[-2000:]
        if "task" in (text := view.text(number) or "") and (m := _SRUN.search(text))
    )
    many_tasks = many_tasks or not _launched_per_node(case)
    for view in case.views:
        block = _Block()
        for number in view.numbers:
            text = view.text(number) or ""
            if "Root Cause (first observed failure)" in text:
                block.in_root = True
            low = text.lower()
            if not any(w in low for w in _TELLING):
                continue
            line = view.line(number)
            if line is None:
                continue
            fact = None if block.takes(line.message) else block.closed_by(line)
            fact = fact or _single(line, joins, many_tasks)
            if fact is not None:
                facts.append(fact)
    # Accounting and containers tell of whole jobs; who names a process knows better.
    return facts or _from_rules(case, joins)


def _from_rules(case: Case, joins: Joins) -> list[ExitFact]:
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
        identity = joins.by_pid.get(pid, line.node) if pid is not None else None
        rank = int(fields["rank"]) if fields.get("rank", "").isdigit() else None
        if rank is None:
            rank = identity.rank if identity and identity.rank is not None else line.rank
        facts.append(ExitFact(code, line, rank, node=fields.get("node") or line.node, pid=pid))
    return facts


def _code(observation: Observation) -> int | None:
    """Return the exit code that a rule found on its line, negative for a signal."""
    code = observation.fields.get("exitcode")
    if code is not None and code.lstrip("-").isdigit():
        number = int(code)
        return -(number - 128) if number - 128 in (6, 7, 9, 11, 15) else number
    signal = observation.fields.get("signal")
    if signal is None:
        return None
    if signal.isdigit():
        return -int(signal)
    known = _SIGNAL_NAMES.get(signal.upper()) or SIGNALS.get(signal.strip().lower())
    return -known if known else None


def _launched_per_node(case: Case) -> bool:
    """Tell whether a launcher sits between srun and the ranks; then a task is a node, not a rank."""
    for view in case.views:
        if view.origin.attempt is not None:
            return True
        for number in view.numbers[:3000] + view.numbers[-3000:]:
            raw = view.survey.kept[number]
            if (
                b"elastic" in raw
                or b"torchrun" in raw
                or b"[default" in raw
                or b"launch.py" in raw
                or b"local_rank:" in raw
            ):
                return True
    return False


def _single(line: LogLine, joins: Joins, many_tasks: bool) -> ExitFact | None:
    text = line.text
    if m := _AGENT.search(text):
        pid = int(m["pid"])
        identity = joins.by_pid.get(pid, line.node)
        return ExitFact(
            int(m["code"]),
            line,
            identity.rank if identity else None,
            int(m["local"]) if m["local"] else None,
            (identity.node if identity else None) or line.node,
            pid,
        )
    if (m := _SRUN.search(text)) and ("srun" in text or "slurmstepd" in text):
        code = int(m["code"]) if m["code"] else -SIGNALS.get(m["word"].strip().lower(), 0)
        if code == 0:
            return None
        single = m["tasks"].isdigit()
        return ExitFact(
            code if code < 128 else -(code - 128) if code - 128 in (6, 7, 9, 11, 15) else code,
            line,
            rank=int(m["tasks"]) if single and many_tasks else None,
            node=m["node"],
        )
    for pattern in (_MPI, _MPI_CODE, _PALS, _COMPOSER, _PADDLE, _PADDLE_POD):
        if m := pattern.search(text):
            return _of_rank(m.groupdict(), line)
    if m := _SPAWN.search(text):
        code = -_SIGNAL_NAMES.get(m["signal"], 0) if m["signal"] else int(m["code"])
        return ExitFact(code, line, None, int(m["index"]), line.node, spawned=True)
    if m := _DEEPSPEED.search(text):
        return ExitFact(int(m["code"]), line, node=line.node)
    if m := _BASH.search(text):
        return ExitFact(-SIGNALS.get(m["word"].lower(), 0), line, rank=line.rank, pid=int(m["pid"]))
    return None


def _of_rank(groups: dict[str, str | None], line: LogLine) -> ExitFact:
    """Return the exit that a launcher reports with the rank: by its code, its signal, or neither."""
    signal, code = groups.get("signal"), groups.get("code")
    ended = -int(signal) if signal else int(code or 1)
    return ExitFact(ended, line, rank=int(groups["rank"] or 0), node=groups.get("node"))


def first_odd(facts: list[ExitFact]) -> ExitFact | None:
    """Return the exit that best stands for the failure: the first that no launcher caused.

    SIGTERM (and the SIGKILL that a launcher sends after it) is what the survivors get, and an
    abort is what NCCL does to itself; they count only when nothing else is there.
    """
    if not facts:
        return None

    def weight(fact: ExitFact) -> int:
        if fact.code in (-15, 143, -2, -1):
            return 3
        if fact.code in (-6, 134, 250):
            return 2
        return 0

    # Several lines describe the same death; the one that knows the rank is the best of them.
    best = min(range(len(facts)), key=lambda i: (weight(facts[i]), i))
    same = [
        f
        for f in facts
        if f.code == facts[best].code and (f.pid is None or f.pid == facts[best].pid)
    ]
    chosen = next((f for f in same if f.rank is not None), facts[best])
    return _earliest([f for f in facts if weight(f) == weight(chosen)], chosen)


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
