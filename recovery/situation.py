"""The facts that a recovery decision may rest on, typed and frozen."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from rerail.domain.diagnosis import Diagnosis
from rerail.domain.job import JobRef

UNKNOWN_JOB = "unknown"
"""What stands for the job where no log and no scheduler named one."""


class _Fact(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Attested(_Fact):
    """One observation from a source that the job cannot write.

    `enough` is false for one that justifies a drain only where the node failed repeatedly: a fault
    that the kernel saw and that by itself asks for a restart. `gpu` is DCGM's index, `at` seconds
    since the epoch; both only where the source tells them.
    """

    source: Literal["kernel", "scheduler", "dcgm", "healthcheck"]
    node: str
    what: str
    enough: bool = True
    gpu: str | None = None
    at: float | None = None


class CheckpointFact(_Fact):
    """One checkpoint on disk. `intact` is None where it could not be checked."""

    path: str
    step: int
    intact: bool | None = None


class History(_Fact):
    """What happened before, as the store knows it.

    `node_failures` counts, for each accused node, the other incidents that were held against it
    within the days that the policy looks back. Their text may come from jobs.
    """

    restarts: int = 0
    restarts_without_progress: int = 0
    plans_for_incident: int = 0
    nodes_drained_last_hour: tuple[str, ...] = ()
    nodes_same_finding: int = 0
    actions_in_window: int = 0
    breaker_open: bool = False
    stopped: str = ""
    node_failures: dict[str, int] = {}


class GroupSpeeds(_Fact):
    """How fast each data-parallel group works, as the job itself measured it.

    `unit_time_s` [n] is the time of one micro-batch in each group without waiting for others,
    `micro_batches` [n] the present split. `communication` says that the groups wait for the network
    and not for each other's computing.
    """

    unit_time_s: tuple[Annotated[float, Field(gt=0, lt=1e9)], ...]
    micro_batches: tuple[Annotated[int, Field(ge=1, le=1_000_000)], ...]
    communication: bool = False

    @model_validator(mode="after")
    def _same_groups(self) -> GroupSpeeds:
        if not self.unit_time_s or len(self.unit_time_s) != len(self.micro_batches):
            raise ValueError("unit_time_s and micro_batches must name the same groups")
        return self


class Situation(_Fact):
    """Everything that a decision may rest on.

    `nodes` is the allocation of the failed attempt as the scheduler reports it, `state` the
    scheduler's word for its end. `died_by_signal` is accounting's word, not the job's.
    `trained_until` is the last step seen, `bad_from` and `bad_to` the first and last batch that
    can hold the poison (inclusive). `parent` is the incident that this one is folded into. `slow`
    means that the job runs and is slow; `tested` that the nodes' health tests ended after the failure.
    `order_hindrance` is why no order could be written into the job's folder, `cannot_requeue` why the
    scheduler would not start the job again; `submit_line` is how its owner submitted it.
    """

    incident: str
    job: JobRef
    state: str
    nodes: tuple[str, ...] = ()
    cluster_nodes: int = 0
    diagnosis: Diagnosis
    attested: tuple[Attested, ...] = ()
    died_by_signal: bool = False
    stalled: bool = False
    slow: bool = False
    speeds: GroupSpeeds | None = None
    tested: bool = False
    checkpoints: tuple[CheckpointFact, ...] = ()
    bad_from: int | None = None
    bad_to: int | None = None
    history: History = History()
    parent: str | None = None
    order_hindrance: str = ""
    cannot_requeue: str = ""
    submit_line: str = ""
    may_resubmit: str = ""
    now: float


def accused_nodes(diagnosis: Diagnosis) -> list[str]:
    """Return the nodes that a diagnosis wants acted on, or else those that it suspects."""
    return list(diagnosis.recovery.targets.nodes or diagnosis.suspects.nodes)
