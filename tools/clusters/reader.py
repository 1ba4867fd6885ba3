"""What recovery asks of any scheduler, read-only."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from rerail.tools.clusters.slurm_outputs import Outputs
from rerail.tools.clusters.slurm_read import JobFiles
from rerail.tools.clusters.slurm_records import AttemptRecord, NodeRecord


class ClusterReader(Protocol):
    """The read-only face of a cluster. Every method may raise ClusterError."""

    def attempts(self, job: str) -> list[AttemptRecord]:
        """Return every attempt of a job, oldest first."""

    def ended_badly(self, since: float) -> list[AttemptRecord]:
        """Return attempts that ended badly since a time in seconds since the epoch."""

    def running(self) -> list[AttemptRecord]:
        """Return the jobs that run now."""

    def nodes(self, names: Sequence[str] = ()) -> list[NodeRecord]:
        """Return the state of nodes; of all nodes when no names are given."""

    def files(self, job: str) -> JobFiles:
        """Return where the job says that its output lies."""

    def outputs(self, attempt: AttemptRecord) -> Outputs:
        """Return every file that a job and its steps were told to write to; the job chose them."""

    def save_logs(self, attempt: AttemptRecord, folder: Path) -> list[str]:
        """Write logs that only the cluster's interface gives into `folder/job`; return problems."""

    def cannot_requeue(self, job: str) -> str:
        """Return why the scheduler would not start this job again, or an empty string."""

    def submit_line(self, job: str) -> str:
        """Return the command with which the job's owner submitted it, or an empty string."""
