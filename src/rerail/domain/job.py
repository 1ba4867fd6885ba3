"""A training job as schedulers and launchers see it: which run, which attempt, on which nodes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from rerail.domain.plain_values import AtLeast
from rerail.domain.record import Record

DEFAULT_CLUSTER = "local"


class JobRef(Record):
    """One attempt of one job. `attempt` counts starts from 0, as Slurm's restart count does."""

    cluster: str = DEFAULT_CLUSTER
    job: str
    attempt: Annotated[int, AtLeast(0)] = 0
    name: str | None = None
    user: str | None = None

    @property
    def key(self) -> str:
        """The idempotency key: two events with the same key are one event."""
        return f"{self.cluster}/{self.job}/{self.attempt}"


class NodeShare(Record):
    """What a job holds on one node: its GPUs by local index and the global ranks that run there."""

    node: str
    gpus: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()


class Allocation(Record):
    """The nodes of a job, as the scheduler reports them; the only nodes an action may touch."""

    nodes: tuple[NodeShare, ...] = ()
    world_size: int | None = None

    def names(self) -> tuple[str, ...]:
        """Return the names of the nodes."""
        return tuple(share.node for share in self.nodes)

    def node_of(self, rank: int) -> str | None:
        """Return the node a global rank runs on, or None when that is not known."""
        return next((share.node for share in self.nodes if rank in share.ranks), None)


class Topology(Record):
    """Sizes of the parallel groups; ranks are laid out with `tensor` fastest (Megatron-LM's order).

    Megatron-LM, parallel_state.py: order "tp-cp-ep-dp-pp"; expert groups lie inside data groups.
    """

    tensor: Annotated[int, AtLeast(1)] = 1
    context: Annotated[int, AtLeast(1)] = 1
    data: Annotated[int, AtLeast(1)] = 1
    pipeline: Annotated[int, AtLeast(1)] = 1
    expert: Annotated[int, AtLeast(1)] = 1

    @property
    def world_size(self) -> int:
        """Number of ranks of the job."""
        return self.tensor * self.context * self.data * self.pipeline

    def coordinates(self, rank: int) -> dict[str, int]:
        """Return the place of a rank in each group.

        Raises:
            ValueError: for a rank outside the job.
        """
        if not 0 <= rank < self.world_size:
            raise ValueError(f"rank {rank} is not one of {self.world_size}")
        rest, tensor = divmod(rank, self.tensor)
        rest, context = divmod(rest, self.context)
        pipeline, data = divmod(rest, self.data)
        return {
            "tensor": tensor,
            "context": context,
            "data": data,
            "pipeline": pipeline,
            "expert": data % self.expert,
        }


class JobEvent(Record):
    """A job ended or was reported as failed: the one form of every hook, poll and webhook.

    `time` is ISO 8601 in UTC. `state` is the scheduler's own word (FAILED, NODE_FAIL, TIMEOUT, ...).
    """

    schema_version: Literal[1] = 1
    job: JobRef
    source: str
    state: str
    time: str
    exit_code: int | None = None
    signal: int | None = None
    logs: tuple[str, ...] = ()
    allocation: Allocation = Allocation()
    topology: Topology | None = None
    extra: dict[str, Any] = {}

    @property
    def key(self) -> str:
        """The idempotency key of the job attempt."""
        return self.job.key


class NodeEvent(Record):
    """A scheduler says that something happened to nodes, or to a job, and not which attempts it hit.

    `what` is the trigger's word (`down`, `drained`, `fail`; `fini`, `time` for a job). Exactly one
    of `nodes` and `job` is given. `time` is ISO 8601 in UTC.
    """

    schema_version: Literal[1] = 1
    cluster: str = DEFAULT_CLUSTER
    what: str
    nodes: tuple[str, ...] = ()
    job: str = ""
    source: str
    time: str

    @property
    def key(self) -> str:
        """What the event is about, for people to read."""
        return f"{self.cluster}/{self.job or ','.join(self.nodes)}/{self.what}"
