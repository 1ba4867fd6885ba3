"""Runs tasks as Slurm jobs of the person who asked: one job per task."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence

from rerail.errors import ClusterError
from rerail.lazy_patterns import lazy
from rerail.recovery.evaluation.runner import Task

_LIMIT_S = 60
_HOST = lazy(r"\bBatchHost=(\S+)")
_USABLE = "idle,mix"


class SlurmRunner:
    """Submits with sbatch and asks squeue; `options` go to every trial (partition, gres, account)."""

    poll_s = 1.0

    def __init__(
        self, options: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> None:
        self.options = tuple(options)
        self.environment = dict(environment or os.environ)

    def nodes(self, count: int) -> list[str]:
        """Return nodes that are idle or have room.

        Raises:
            ClusterError: sinfo fails.
        """
        shown = self._call("sinfo", "-h", "-N", "-t", _USABLE, "-o", "%N", *self._partition())
        return sorted(set(shown.split()))[:count]

    def start(self, task: Task) -> str:
        """Submit a job and return its number.

        Raises:
            ClusterError: sbatch fails.
        """
        where = [f"--nodelist={task.node}"] if task.node else []
        where += [f"--exclude={','.join(task.avoid)}"] if task.avoid else []
        trial = [one for one in self.options if task.needs_gpu or not _wants_gpu(one)]
        out = self._call(
            "sbatch", "--parsable", "--nodes=1", "--ntasks=1", "--no-requeue",
            f"--job-name=rerail-eval-{task.name}", f"--output={task.folder}/output.log",
            f"--chdir={task.folder}", "--export=ALL", *where, *trial,
            f"--wrap={shlex.join(task.command)}",
        )  # fmt: skip
        return out.strip().split(";")[0]

    def ended(self, handles: Sequence[str]) -> set[str]:
        """Return the jobs that squeue does not show as waiting or running.

        Raises:
            ClusterError: squeue fails; nothing is taken for ended then.
        """
        if not handles:
            return set()
        shown = self._call(
            "squeue", "-h", "--me", "-t", "PENDING,RUNNING,CONFIGURING,COMPLETING,SUSPENDED",
            "-o", "%i",
        )  # fmt: skip
        return set(handles) - set(shown.split())

    def node_of(self, handle: str) -> str:
        """Return the node on which the job's script ran, as the controller remembers it for minutes."""
        try:
            shown = self._call("scontrol", "-o", "show", "job", handle)
        except ClusterError:
            return ""
        found = _HOST.search(shown)
        return found[1] if found else ""

    def cancel(self, handles: Sequence[str]) -> None:
        """Cancel the jobs.

        Raises:
            ClusterError: scancel fails.
        """
        if handles:
            self._call("scancel", *handles)

    def _partition(self) -> list[str]:
        return [one for one in self.options if one.startswith("--partition=")]

    def _call(self, *command: str) -> str:
        try:
            done = subprocess.run(
                command, env=self.environment, capture_output=True, text=True, timeout=_LIMIT_S,
                check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ClusterError(
                f"{command[0]}: {error}", subject=command[0], hint="is Slurm installed here?",
                recoverable=isinstance(error, subprocess.TimeoutExpired),
            ) from None  # fmt: skip
        if done.returncode:
            raise ClusterError(
                f"{command[0]}: {done.stderr.strip()}", subject=command[0],
                hint=shlex.join(command), recoverable=True,
            )  # fmt: skip
        return done.stdout


def _wants_gpu(option: str) -> bool:
    return option.startswith(("--gres", "--gpus"))
