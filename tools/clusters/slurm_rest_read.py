"""Reads a Slurm cluster through slurmrestd: the same face as the commands, no method changes anything.

Text comes first where both are at hand (`TextFirst`): 22.05 reports success for steps that failed,
and what this reader cannot know it leaves open instead of taking it over.
"""

from __future__ import annotations

import pwd
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from rerail.errors import ClusterError
from rerail.tools.clusters.host_list import expand
from rerail.tools.clusters.slurm_json import epoch_of, read_job_records, state_of
from rerail.tools.clusters.slurm_outputs import Outputs, outputs_of
from rerail.tools.clusters.slurm_read import (
    JobFiles,
    SlurmReader,
    check_node_names,
    checked_job,
    merge_current,
)
from rerail.tools.clusters.slurm_records import ENDED_BADLY, AttemptRecord, NodeRecord
from rerail.tools.clusters.slurm_rest import SlurmRest

T = TypeVar("T")
# Belongs to no process: a job whose user is not known has no files that may be read for it.
NOBODY_KNOWN = -1


class SlurmRestReader:
    """The read-only face of one Slurm cluster behind one socket."""

    def __init__(self, rest: SlurmRest) -> None:
        self.rest = rest

    def controller_up(self) -> bool:
        """Return whether the controller answers."""
        try:
            self.rest.call("GET", self.rest.controller("ping"))
        except ClusterError:
            return False
        return True

    def _jobs(self, path: str) -> list[dict[str, Any]]:
        answer = self.rest.call("GET", self.rest.controller(path))
        return [one for one in answer.get("jobs") or [] if isinstance(one, dict)]

    def attempts(self, job: str) -> list[AttemptRecord]:
        """Return every attempt of a job, oldest first.

        Raises:
            ClusterError: Slurm does not answer or does not know the job.
        """
        number = checked_job(job)
        known = self.rest.call("GET", self.rest.accounting(f"job/{number}")).get("jobs") or []
        users = [_uid(one.get("user")) for one in known]
        found = [
            replace(one, uid=user)
            for one, user in zip(read_job_records(known), users, strict=True)
            if one.job == number or "_" in number
        ]
        for one in self._jobs(f"job/{number}"):
            if _job_name(one) == number or "_" in number:
                found = merge_current(found, _present(one))
        if not found:
            raise ClusterError(f"Slurm knows no job {job}", subject=job, hint="sacct -D -j " + job)
        return found

    def ended_badly(self, since: float) -> list[AttemptRecord]:
        """Return attempts that ended badly since a time in seconds since the epoch.

        Only jobs that the controller still remembers (MinJobAge) are looked at.

        Raises:
            ClusterError: Slurm does not answer.
        """
        return [
            attempt
            for one in self._jobs("jobs")
            # A job that Slurm requeued by itself is pending or running by now.
            if state_of(one.get("job_state")) in ENDED_BADLY or int(one.get("restart_cnt") or 0)
            for attempt in self.attempts(_job_name(one))
            if attempt.state in ENDED_BADLY and (attempt.end is None or attempt.end >= since)
        ]

    def running(self) -> list[AttemptRecord]:
        """Return the jobs that run now."""
        jobs = self._jobs("jobs")
        return [_present(one) for one in jobs if state_of(one.get("job_state")) == "RUNNING"]

    def nodes(self, names: Sequence[str] = ()) -> list[NodeRecord]:
        """Return the state of nodes; of all nodes when no names are given.

        Raises:
            ClusterError: Slurm does not answer or a name is not a node name.
        """
        check_node_names(names)
        listed = self.rest.call("GET", self.rest.controller("nodes")).get("nodes") or []
        return [_node(one) for one in listed if not names or one.get("name") in names]

    def cannot_requeue(self, job: str) -> str:
        """Return why Slurm would refuse to requeue a job, or an empty string."""
        found = self._jobs(f"job/{checked_job(job)}")
        if not found:
            return "the controller knows the job no longer (MinJobAge in slurm.conf)"
        if found[-1].get("batch_flag") is False:
            return "it was started by salloc or srun: only jobs of sbatch can be requeued"
        if found[-1].get("requeue") is False:
            return "it was submitted with --no-requeue, or slurm.conf says JobRequeue=0"
        return ""

    def submit_line(self, job: str) -> str:
        """Return nothing: slurmrestd of 22.05 does not tell it."""
        return ""

    def files(self, job: str) -> JobFiles:
        """Return where the job's output lies, as far as the controller still knows the job."""
        number = checked_job(job)
        try:
            jobs = self._jobs(f"job/{number}")
        except ClusterError as error:
            if error.recoverable:
                raise
            return JobFiles(None, None, None)
        for one in jobs:
            folder = one.get("current_working_directory") or None
            out = _path(one, "standard_output", folder)
            return JobFiles(out, _path(one, "standard_error", folder) or out, folder)
        return JobFiles(None, None, None)

    def outputs(self, attempt: AttemptRecord) -> Outputs:
        """Return the job's own files; slurmrestd of 22.05 does not tell what steps were told."""
        files = self.files(attempt.job)
        named = (("StdOut", files.stdout), ("StdErr", files.stderr), ("WorkDir", files.folder))
        present = {key: value for key, value in named if value}
        return outputs_of([], present, job=attempt.job, nodes=attempt.nodes)

    def save_logs(self, attempt: AttemptRecord, folder: Path) -> list[str]:
        """Write nothing: a Slurm job's output lies in files (`files`)."""
        return []


class TextFirst(SlurmReader):
    """Slurm's commands first; slurmrestd answers where they are absent or get no answer.

    `text` may be any reader of commands; its programs need not be installed.
    """

    def __init__(self, text: SlurmReader, rest: SlurmRestReader) -> None:
        super().__init__(prefix=text.prefix, environment=text.environment, limit_s=text.limit_s)
        self.text = text
        self.rest = rest

    def _either(self, text: Callable[[], T], rest: Callable[[], T]) -> T:
        try:
            return text()
        except ClusterError as first:
            try:
                return rest()
            except ClusterError as second:
                # The one that a retry may mend decides whether there is one.
                raise (first if first.recoverable or not second.recoverable else second) from None

    def attempts(self, job: str) -> list[AttemptRecord]:
        """Return every attempt of a job, oldest first."""
        return self._either(lambda: self.text.attempts(job), lambda: self.rest.attempts(job))

    def ended_badly(self, since: float) -> list[AttemptRecord]:
        """Return attempts that ended badly since a time in seconds since the epoch."""
        return self._either(
            lambda: self.text.ended_badly(since), lambda: self.rest.ended_badly(since)
        )

    def running(self) -> list[AttemptRecord]:
        """Return the jobs that run now."""
        return self._either(self.text.running, self.rest.running)

    def nodes(self, names: Sequence[str] = ()) -> list[NodeRecord]:
        """Return the state of nodes; of all nodes when no names are given."""
        return self._either(lambda: self.text.nodes(names), lambda: self.rest.nodes(names))

    def files(self, job: str) -> JobFiles:
        """Return where the job's output lies."""
        return self._either(lambda: self.text.files(job), lambda: self.rest.files(job))

    def outputs(self, attempt: AttemptRecord) -> Outputs:
        """Return every file that a job and its steps were told to write to."""
        return self._either(lambda: self.text.outputs(attempt), lambda: self.rest.outputs(attempt))

    def controller_up(self) -> bool:
        """Return whether the controller answers, by either way."""
        return self.text.controller_up() or self.rest.controller_up()


def _present(one: dict[str, Any]) -> AttemptRecord:
    """Return the controller's word for the present attempt.

    The exit code is left to accounting: here it is a raw wait status up to 0.0.38, a record later.
    """
    return AttemptRecord(
        _job_name(one),
        int(one.get("restart_cnt") or 0),
        state_of(one.get("job_state")),
        expand(str(one.get("nodes") or "")),
        start=epoch_of(one.get("start_time")),
        end=epoch_of(one.get("end_time")),
        uid=int(one["user_id"]) if isinstance(one.get("user_id"), int) else NOBODY_KNOWN,
    )


def _job_name(one: dict[str, Any]) -> str:
    return str(one.get("job_id"))


def _uid(user: object) -> int:
    try:
        return pwd.getpwnam(str(user)).pw_uid
    except KeyError:
        return NOBODY_KNOWN


def _node(one: dict[str, Any]) -> NodeRecord:
    """Return a node; up to 0.0.38 its state is a word with flags beside it, later a list of both."""
    state = one.get("state")
    words = [str(word) for word in state] if isinstance(state, list) else [str(state or "UNKNOWN")]
    words += [str(flag) for flag in one.get("state_flags") or []]
    return NodeRecord(
        str(one.get("name")),
        "+".join(word.upper() for word in words),
        str(one.get("reason") or ""),
        str(int(epoch_of(one.get("reason_changed_at")) or 0) or ""),
    )


def _path(one: dict[str, Any], key: str, folder: str | None) -> str | None:
    """Return an output path with its %-signs filled in; None where one is not known."""
    name = str(one.get(key) or "")
    if not name:
        if key != "standard_output" or one.get("batch_flag") is False:
            return None
        name = "slurm-%A_%a.out" if one.get("array_job_id") not in (None, 0) else "slurm-%j.out"
    index = one.get("array_task_id")
    values = {
        "%": "%",
        "j": _job_name(one),
        "A": str(one.get("array_job_id") or _job_name(one)),
        "a": "" if index is None else str(index),
        "u": str(one.get("user_name") or ""),
        "x": str(one.get("name") or ""),
    }
    parts = re.split(r"%(\d*[A-Za-z%])", name)
    if any(part not in values for part in parts[1::2]):
        return None
    filled = "".join(values[part] if place % 2 else part for place, part in enumerate(parts))
    return str(Path(folder or "/") / filled)
