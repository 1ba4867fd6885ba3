"""What a launcher gets and is: the job of one run, the launcher's names, and torchrun's command line."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rerail.evals.launchers.hosts import Hosts

Process = subprocess.Popen[bytes]
STEP_LIMIT_S = 30
SEEN = "seen"
"""Copies of what ranks print, for launchers that show it at the end alone."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run: hosts, the job's folder, where logs go, the interpreter, the program's arguments."""

    hosts: Hosts
    folder: Path
    logs: Path
    python: Path
    per_host: int
    arguments: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the hosts."""
        return self.hosts.names

    @property
    def head(self) -> str:
        """Address of the first host."""
        return self.hosts.address[self.names[0]]

    @property
    def world(self) -> int:
        """Number of ranks."""
        return len(self.names) * self.per_host

    def program(self, name: str) -> str:
        """Return the path of an installed command."""
        return str(self.python.parent / name)

    def command(self) -> list[str]:
        """Return the training command."""
        return [str(self.python), "train.py", *self.arguments]

    def start(
        self, host: str, command: Sequence[str], log: str, extra: Mapping[str, str] | None = None
    ) -> Process:
        """Run a command on a host, with its output in a file of the logs."""
        return self.hosts.run(host, command, self.logs / log, extra)


@dataclass(frozen=True, slots=True)
class Launcher:
    """One launcher or framework.

    Attributes:
        hosts: Names of its hosts.
        per_host: Ranks on each.
        program: File of `programs/`.
        start: Starts the job; the run is over when all its processes are.
        no_rank: Scenarios whose logs let nobody tell the rank; `no_host` the host.
        limit_s: When the lab ends the run.
        more_leaves: Further right types, by scenario.
        labels: How its lines are labelled, in words.
        environment: Name of its packages in `environment.sh`.
        only_named: Whether it runs only when it is named; its logs are too large for the recorded set.
    """

    name: str
    labels: str
    hosts: tuple[str, ...]
    per_host: int
    program: str
    start: Callable[[Job], list[Process]]
    no_rank: tuple[str, ...] = ()
    no_host: tuple[str, ...] = ()
    limit_s: float = 100
    more_leaves: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    environment: str = "torch"
    only_named: bool = False


def torchrun_command(job: Job, node: int, *more: str) -> list[str]:
    """Return torchrun's command on one of the hosts."""
    return [
        job.program("torchrun"),
        *(f"--nnodes={len(job.names)}", f"--nproc-per-node={job.per_host}"),
        *(f"--node-rank={node}", f"--master-addr={job.names[0]}", "--master-port=29500"),
        *more,
        "train.py",
        *job.arguments,
    ]
