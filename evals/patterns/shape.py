"""What is simulated: the shape of a job and what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FaultKind = Literal[
    "link", "clock", "pcie", "nvlink", "loader", "cpu", "gc", "lengths", "last_stage", "code",
    "function",
]  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """One root cause with its severity: how many times slower, or how much of a step is lost.

    `workers` are global ranks for faults of devices; those of the job (lengths, last stage, code) have
    none. `random` moves the fault to other ranks in each step.
    """

    kind: FaultKind
    ratio: float
    workers: tuple[int, ...] = ()
    random: bool = False


@dataclass(frozen=True)
class Shape:
    """A job of dp x pp x tp workers; tensor-parallel groups lie inside nodes of eight.

    `lighter` gives every fourth replica expert hosts with 0.3 of the matmul work, `mixed` a second
    node type with slower kernels. `jitter` is the sigma of log-normal noise of each kernel and `spread`
    that of the workers' speeds. `last` multiplies the compute of the last stage. `counters` adds
    samples of the link use. `labels` says whether roles are written into the summaries.
    """

    dp: int
    pp: int = 1
    tp: int = 1
    steps: int = 6
    micro_batches: int = 2
    lighter: bool = False
    mixed: bool = False
    jitter: float = 0.02
    spread: float = 0.006
    last: float = 1.04
    counters: bool = False
    labels: bool = True
    seed: int = 0

    @property
    def workers(self) -> int:
        """Return the world size."""
        return self.dp * self.pp * self.tp

    def rank(self, dp: int, stage: int, tp: int) -> int:
        """Return the global rank of a place in the mesh."""
        return (dp * self.pp + stage) * self.tp + tp

    def host(self, rank: int) -> str:
        """Return the node of a rank."""
        return f"node{rank // 8:04d}"

    def role(self, dp: int, stage: int) -> str:
        """Return what a scheduler or the launcher knows of a worker: stage, expert, node type."""
        parts = [f"stage {stage}"] if self.pp > 1 else []
        if self.lighter and dp % 4 == 3:
            parts.append("experts")
        if self.mixed and dp >= self.dp // 2:
            parts.append("type B")
        return ", ".join(parts) or "trainer"
