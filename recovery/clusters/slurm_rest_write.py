"""Carries out on Slurm through slurmrestd what its interface offers; scontrol and scancel do the rest.

Offered are cancelling, and from 0.0.40 on the update of a node. There is no requeue. Stack dumps
stay with scancel on purpose: on 22.05 a signal sent through slurmrestd reaches the batch script as
well and ends the job (seen there), `scancel --signal` reaches the steps only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rerail.domain.job import JobRef
from rerail.domain.plan import ActionKind, PlannedAction
from rerail.errors import RecoveryError
from rerail.recovery.clusters.slurm_write import SlurmWriter, drain_reason
from rerail.recovery.clusters.writer import Before, nothing_before
from rerail.tools.clusters.host_list import is_node_name
from rerail.tools.clusters.slurm_read import SlurmReader, checked_job
from rerail.tools.clusters.slurm_rest import SlurmRest


@dataclass(frozen=True)
class Request:
    """One request of slurmrestd."""

    method: str
    url: str
    body: dict[str, object] = field(default_factory=dict)


class SlurmRestWriter(SlurmWriter):
    """Slurm's write face with a socket whose slurmrestd runs as the writer's account."""

    def __init__(
        self,
        reader: SlurmReader,
        rest: SlurmRest,
        *,
        prefix: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        dump_signal: str = "USR1",
        health_command: Sequence[str] = ("rerail",),
        health_output: str = "/dev/null",
        job_user: Sequence[str] = (),
    ) -> None:
        super().__init__(
            reader,
            prefix=prefix,
            environment=environment,
            dump_signal=dump_signal,
            health_command=health_command,
            health_output=health_output,
            job_user=job_user,
        )
        self.rest = rest

    def request(self, action: PlannedAction, job: JobRef, incident: str) -> Request | None:
        """Return the request that performs an action, or None where the server offers none.

        Raises:
            ClusterError: slurmrestd does not answer.
            RecoveryError: The target is no node name.
        """
        if action.kind is ActionKind.CANCEL:
            return Request("DELETE", self.rest.controller(f"job/{checked_job(job.job)}"))
        if action.kind not in (ActionKind.DRAIN, ActionKind.UNDRAIN):
            return None
        if not is_node_name(action.target):
            raise RecoveryError(f"{action.target!r} is no node name", subject=action.target)
        if not self.rest.offers("POST", "node/{node_name}"):
            return None
        url = self.rest.controller(f"node/{action.target}")
        if action.kind is ActionKind.UNDRAIN:
            return Request("POST", url, {"state": ["RESUME"]})
        return Request("POST", url, {"state": ["DRAIN"], "reason": drain_reason(action, incident)})

    def commands(self, action: PlannedAction, job: JobRef, incident: str) -> list[list[str]]:
        """Return exactly what `carry_out` would do now: a request as the curl command for it."""
        request = self.request(action, job, incident)
        if request is None:
            return super().commands(action, job, incident)
        body = ["--json", json.dumps(request.body)] if request.body else []
        return [
            [
                *("curl", "--unix-socket", self.rest.path, "-X", request.method, *body),
                f"http://localhost{request.url}",
            ]
        ]

    def carry_out(
        self, action: PlannedAction, job: JobRef, incident: str, before: Before = nothing_before
    ) -> None:
        """Perform the action.

        Raises:
            ClusterError: recoverable where the controller or slurmrestd was away.
        """
        request = self.request(action, job, incident)
        if request is None:
            super().carry_out(action, job, incident, before)
        else:
            for command in self.commands(action, job, incident):
                before(command)
            self.rest.call(request.method, request.url, request.body or None)
