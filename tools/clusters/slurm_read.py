"""Reads a Slurm cluster through its commands; no method here can change it.

The programs called are squeue, sacct, sinfo and `scontrol show|ping`. `sacct -P` text comes first,
because the JSON of 22.05 reports success for steps that failed.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rerail.errors import ClusterError, UsageError
from rerail.tools.clusters.command import run_command
from rerail.tools.clusters.host_list import is_node_name
from rerail.tools.clusters.slurm_outputs import (
    LATER_FIELDS,
    OUTPUT_FIELDS,
    SEPARATOR,
    OutputRow,
    Outputs,
    outputs_of,
    read_rows,
)
from rerail.tools.clusters.slurm_records import ENDED_BADLY, AttemptRecord, NodeRecord, state_word
from rerail.tools.clusters.slurm_text import (
    SACCT_FIELDS,
    SINFO_FORMAT,
    SQUEUE_FORMAT,
    TABLE_FIELDS,
    attempt_rows,
    job_paths,
    read_sacct,
    read_sinfo,
    read_squeue,
)

FIELDS = ",".join(SACCT_FIELDS)
_RAW_ID = re.compile(r"[0-9]{1,12}")
_REQUEUE = re.compile(r"^ +Requeue=(?P<requeue>\d) Restarts=\d+ BatchFlag=(?P<batch>\d)", re.M)


@dataclass(frozen=True, slots=True)
class JobFiles:
    """Where a job says that its output lies; the job chose these paths."""

    stdout: str | None
    stderr: str | None
    folder: str | None


def checked_job(job: str) -> str:
    """Return a job id that is safe on a command line.

    Raises:
        UsageError: It is not a number, optionally with an array index or the place in a
            heterogeneous job.
    """
    if not re.fullmatch(r"[0-9]{1,12}(?:[_+][0-9]{1,7})?", job):
        raise UsageError(f"{job!r} is no Slurm job id", subject=job, hint="squeue --me")
    return job


def check_node_names(names: Sequence[str]) -> None:
    """Refuse names that are no node's before they reach a command line or an address.

    Raises:
        ClusterError: One is not a node name.
    """
    for name in names:
        if not is_node_name(name):
            raise ClusterError(f"{name!r} is no node name", subject=name)


def _ids(text: str, command: str, job: str) -> list[tuple[str, str, str]]:
    rows = [line.split("|") for line in text.splitlines()]
    whole = [row for row in rows if len(row) == 3 and _RAW_ID.fullmatch(row[1])]
    if rows and not whole:
        raise ClusterError(
            f"{command.split()[0]} gives no list of jobs",
            subject=job,
            hint=f"{command} {job}",
            recoverable=True,
        )
    return [(row[0], row[1], state_word(row[2])) for row in whole]


class SlurmReader:
    """The read-only face of one Slurm cluster.

    `prefix` is put before every command: the reader's identity, `("sudo", "-n", "-u", "reader")`.
    A command may take `limit_s` seconds.
    """

    def __init__(
        self,
        *,
        prefix: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        limit_s: float = 20.0,
    ) -> None:
        self.prefix = tuple(prefix)
        self.limit_s = limit_s
        base = os.environ if environment is None else environment
        # Times as seconds since the epoch: no time zone to guess.
        self.environment = {**base, "SLURM_TIME_FORMAT": "%s"}

    def _run(self, *argv: str) -> str:
        return run_command(
            (*self.prefix, *argv), environment=self.environment, limit_s=self.limit_s
        )

    def version(self) -> str:
        """Return the version of the client programs, `22.05.8` for example."""
        return self._run("sinfo", "--version").split()[-1]

    def controller_up(self) -> bool:
        """Return whether the controller answers."""
        try:
            return "is UP" in self._run("scontrol", "ping")
        except ClusterError:
            return False

    def attempts(self, job: str) -> list[AttemptRecord]:
        """Return every attempt of a job, oldest first.

        Without accounting only the current attempt is known, from squeue.

        Raises:
            ClusterError: Slurm does not answer or does not know the job.
        """
        number = checked_job(job)
        try:
            text = self._run("sacct", "-n", "-P", "-D", "-j", number, "-o", FIELDS)
            found = [one for one in read_sacct(text) if one.job == number or not number.isdigit()]
        except ClusterError as error:
            if error.recoverable or "accounting storage is disabled" not in error.message:
                raise
            found = []
        current = self.current(number)
        if current is not None:
            found = merge_current(found, current)
        if not found:
            raise ClusterError(f"Slurm knows no job {job}", subject=job, hint="sacct -D -j " + job)
        return found

    def current(self, job: str) -> AttemptRecord | None:
        """Return what the controller itself says of the job; accounting lags behind it.

        Raises:
            ClusterError: The controller does not answer.
        """
        try:
            text = self._run("squeue", "-h", "-t", "all", "-j", job, "-o", SQUEUE_FORMAT)
        except ClusterError as error:
            if error.recoverable:
                raise
            return None
        rows = read_squeue(text)
        if not rows:
            return None
        # The number of an array is that of one of its tasks too, and all of them are shown.
        _, state, uid, nodes = next((row for row in rows if row[0] == job), rows[0])
        return AttemptRecord(job, self._restarts(job), state, nodes, uid=uid)

    def completing(self, job: str) -> bool:
        """Return whether Slurm is still cleaning up after the present attempt."""
        current = self.current(checked_job(job))
        return current is not None and current.state == "COMPLETING"

    def _restarts(self, job: str) -> int:
        text = self._run("squeue", "-h", "-t", "all", "-j", job, "-O", "RestartCnt:12")
        words = text.split()
        return int(words[0]) if words and words[0].isdigit() else 0

    def ended_badly(self, since: float) -> list[AttemptRecord]:
        """Return attempts that ended badly since a time in seconds since the epoch.

        Raises:
            ClusterError: Slurm does not answer.
        """
        start = f"uts{int(since)}"
        states = "F,TO,NF,OOM,PR,BF,DL"
        try:
            text = self._run(
                *("sacct", "-n", "-P", "-D", "-a", "-X", "-S", start, "-E", "now", "-s", states),
                *("-o", FIELDS),
            )
        except ClusterError as error:
            if "accounting storage is disabled" not in error.message:
                raise
            return self._ended_badly_now()
        jobs = {one.job for one in read_sacct(text) if one.state in ENDED_BADLY}
        if not jobs:
            return []
        # A second look at whole jobs: attempt numbers need the attempts before `since` as well.
        text = self._run(
            *("sacct", "-n", "-P", "-D", "-j", ",".join(sorted(jobs)), "-o", FIELDS),
        )
        return [
            one
            for one in read_sacct(text)
            if one.state in ENDED_BADLY and (one.end is None or one.end >= since)
        ]

    def _ended_badly_now(self) -> list[AttemptRecord]:
        text = self._run("squeue", "-h", "-t", "all", "-o", SQUEUE_FORMAT)
        return [
            AttemptRecord(job, self._restarts(job), state, nodes, uid=uid)
            for job, state, uid, nodes in read_squeue(text)
            if state in ENDED_BADLY
        ]

    def running(self) -> list[AttemptRecord]:
        """Return the jobs that run now (their attempt number is not asked for)."""
        text = self._run("squeue", "-h", "-t", "R", "-o", SQUEUE_FORMAT)
        return [
            AttemptRecord(job, 0, state, nodes, uid=uid)
            for job, state, uid, nodes in read_squeue(text)
        ]

    def nodes(self, names: Sequence[str] = ()) -> list[NodeRecord]:
        """Return the state of nodes; of all nodes when no names are given.

        Raises:
            ClusterError: Slurm does not answer or a name is not a node name.
        """
        check_node_names(names)
        chosen = ("-n", ",".join(names)) if names else ()
        return read_sinfo(self._run("sinfo", "-h", "-N", *chosen, "-o", SINFO_FORMAT))

    def files(self, job: str) -> JobFiles:
        """Return where the job's output lies, as far as the controller still knows the job."""
        try:
            text = self._run("scontrol", "show", "job", checked_job(job))
        except ClusterError as error:
            if error.recoverable:
                raise
            return JobFiles(None, None, None)
        paths = job_paths(text.splitlines(), job)
        return JobFiles(paths.get("StdOut"), paths.get("StdErr"), paths.get("WorkDir"))

    def outputs(self, attempt: AttemptRecord) -> Outputs:
        """Return every file that a job and its steps were told to write to.

        Where accounting does not answer it is what the controller knows: the output of the job, not of its steps.

        Raises:
            ClusterError: Slurm does not answer.
        """
        files = self.files(attempt.job)
        named = (("StdOut", files.stdout), ("StdErr", files.stderr), ("WorkDir", files.folder))
        try:
            rows = self._output_rows(attempt.job)
        except ClusterError:
            if files.stdout is None:
                raise
            rows = []
        return outputs_of(
            rows,
            {key: value for key, value in named if value},
            job=attempt.job,
            nodes=attempt.nodes,
            attempt=attempt.attempt,
            script=lambda: self.script(attempt.job),
        )

    def _output_rows(self, job: str) -> list[OutputRow]:
        for later in (True, False):
            names = (*OUTPUT_FIELDS[:-1], *(LATER_FIELDS if later else ()), OUTPUT_FIELDS[-1])
            try:
                text = self._run(
                    *("sacct", "-n", "-P", "-D", f"--delimiter={SEPARATOR}", "-j", job),
                    *("-o", ",".join(names)),
                )
            except ClusterError as error:
                if error.recoverable:
                    raise
                continue  # sacct before 24.05 knows no StdOut; a site may keep no accounting
            return read_rows(text, later)
        return []

    def script(self, job: str) -> str:
        """Return the batch script as it was submitted; empty where neither accounting nor the controller kept it.

        Accounting keeps it where slurm.conf says so (AccountingStoreFlags=job_script), the controller while it
        knows the job.
        """
        number = checked_job(job)
        for ask in (
            ("sacct", "-B", "-j", number),
            ("scontrol", "write", "batch_script", number, "-"),
        ):
            with contextlib.suppress(ClusterError):
                _, begins, script = self._run(*ask).partition("#!")
                if begins:
                    return begins + script
        return ""

    def shown_ids(self, job: str) -> list[tuple[str, str, str]]:
        """Return the id that people see, the raw one and the state of every job that an id means.

        Several for an array (`4711_3`) and for a heterogeneous job (`4711+1`); empty without accounting.

        Raises:
            ClusterError: accounting does not answer, or with something else.
        """
        try:
            text = self._run(
                *("sacct", "-n", "-P", "-X", "-j", checked_job(job)),
                *("-o", "JobID,JobIDRaw,State"),
            )
        except ClusterError as error:
            if error.recoverable:
                raise
            return []
        return _ids(text, "sacct -X -j", job)

    def queued_ids(self, job: str) -> list[tuple[str, str, str]]:
        """Return what `shown_ids` returns, as the controller knows it: jobs that run, wait or ended minutes ago.

        Raises:
            ClusterError: the controller does not answer, or does not know the job.
        """
        number = checked_job(job)
        text = self._run("squeue", "-h", "-t", "all", "-j", number, "-o", "%i|%A|%T")
        return _ids(text, "squeue -j", job)

    def daemon_logs(self) -> list[str]:
        """Return the logs of slurmctld and slurmd that slurm.conf names, as patterns of its own."""
        try:
            text = self._run("scontrol", "show", "config")
        except ClusterError as error:
            if error.recoverable:
                raise
            return []
        found = re.findall(r"^Slurm(?:ctld|d)LogFile\s*= (/.*)$", text, re.M)
        return [one.strip() for one in found]

    def table(self, attempt: AttemptRecord) -> str:
        """Return accounting's own table of an attempt and its steps, as `sacct -P` prints it.

        An exit code as accounting derived it and memory are in it; empty without accounting.
        """
        try:
            text = self._run(
                *("sacct", "-P", "-D", "-j", checked_job(attempt.job)),
                *("-o", ",".join(("JobIDRaw", *TABLE_FIELDS))),
            )
        except ClusterError as error:
            if error.recoverable:
                raise
            return ""
        return attempt_rows(text, attempt)

    def cannot_requeue(self, job: str) -> str:
        """Return why Slurm would refuse to requeue a job, or an empty string.

        Raises:
            ClusterError: Slurm does not answer.
        """
        try:
            text = self._run("scontrol", "show", "job", checked_job(job))
        except ClusterError as error:
            if error.recoverable:
                raise
            return "the controller knows the job no longer (MinJobAge in slurm.conf)"
        found = _REQUEUE.search(text)
        if found is None:
            return ""
        if found["batch"] == "0":
            return "it was started by salloc or srun: only jobs of sbatch can be requeued"
        if found["requeue"] == "0":
            return "it was submitted with --no-requeue, or slurm.conf says JobRequeue=0"
        return ""

    def submit_line(self, job: str) -> str:
        """Return the sbatch command of a job's owner, as accounting kept it; empty if it did not."""
        try:
            text = self._run(
                *("sacct", "-n", "-P", "-X", "-j", checked_job(job), "-o", "SubmitLine")
            )
        except ClusterError:
            return ""
        lines = [one for one in text.splitlines() if one.strip()]
        return lines[-1] if lines and lines[-1].startswith("sbatch ") else ""

    def save_logs(self, attempt: AttemptRecord, folder: Path) -> list[str]:
        """Write nothing: a Slurm job's output lies in files (`files`)."""
        return []


def merge_current(found: list[AttemptRecord], current: AttemptRecord) -> list[AttemptRecord]:
    """Put the controller's word for the current attempt over that of accounting."""
    if not found:
        return [current]
    last = found[-1]
    if current.attempt > last.attempt:
        return [*found, current]
    # While Slurm cleans up after an attempt, only accounting says how it ended.
    ended = current.state == "COMPLETING" and last.state in ENDED_BADLY
    state = last.state if ended else current.state
    same = replace(last, state=state, nodes=current.nodes or last.nodes)
    return [*found[:-1], same]
