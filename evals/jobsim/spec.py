"""What is simulated: the shape of a job, its usual times and noise, and what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from rerail.domain.series import FloatArray

FaultKind = Literal["gpu", "node", "cpu", "storage", "pp_link", "tp_link", "dp_ring"]


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: `ratio` times slower than healthy.

    gpu: one rank's compute (dp, stage, tp). node: all tensor-parallel ranks of (dp, stage), which
    share a node. pp_link: the transfers between `stage` and `stage + 1` of one replica. tp_link:
    the collectives of one tensor-parallel group. dp_ring: the gradient ring of one (stage, tp).
    cpu: `ratio` - 1 of a micro-batch's time before each op of one rank's launch. storage: the
    same before the first op of a step, on one replica.
    """

    kind: FaultKind
    ratio: float
    dp: int = 0
    stage: int = 0
    tp: int = 0


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A job: parallel sizes, micro-batches, chunks per stage, seconds per op, noise, faults.

    Times in seconds for one micro-batch on one chunk. `noise` is the sigma of log-normal jitter
    of each op on each rank, `length_sigma` that of the work of a micro-batch, which is the same
    on all stages and in both directions. `first_stage` and `last_stage` multiply the compute of
    the embedding's and the loss's stage. A ring moves 2 (n-1)/n of the bytes over each link, a
    tree up to twice; `collectives` picks which one a data-parallel reduction uses. `inner` says
    what the innermost groups are for: tensor, context or expert parallel.
    """

    dp: int = 4
    pp: int = 4
    tp: int = 1
    micro_batches: int = 8
    chunks: int = 1
    steps: int = 4
    forward_s: float = 0.02
    backward_s: float = 0.04
    p2p_s: float = 0.0005
    tp_s: float = 0.001
    dp_s: float = 0.05
    optimizer_s: float = 0.01
    noise: float = 0.02
    length_sigma: float = 0.0
    first_stage: float = 1.0
    last_stage: float = 1.0
    collectives: Literal["ring", "tree"] = "ring"
    overlap_dp: bool = False
    inner: Literal["tp", "cp", "ep"] = "tp"
    faults: tuple[Fault, ...] = ()
    seed: int = 0

    @property
    def world_size(self) -> int:
        """Return the number of ranks."""
        return self.dp * self.pp * self.tp

    def with_faults(self, *faults: Fault, seed: int | None = None) -> JobSpec:
        """Return the same job with these faults."""
        return replace(self, faults=faults, seed=self.seed if seed is None else seed)

    def rank(self, dp: int, stage: int, tp: int = 0) -> int:
        """Return the global rank, tensor parallel innermost and data parallel outermost."""
        return (dp * self.pp + stage) * self.tp + tp

    def compute_factor(self) -> FloatArray:
        """Return how much slower each rank computes, shape (dp, pp, tp)."""
        out = np.ones((self.dp, self.pp, self.tp))
        for fault in self.faults:
            if fault.kind == "gpu":
                out[fault.dp, fault.stage, fault.tp] *= fault.ratio
            elif fault.kind == "node":
                out[fault.dp, fault.stage] *= fault.ratio
        return out

    def stage_factor(self) -> FloatArray:
        """Return how much longer each stage's share of the model is, shape (pp,)."""
        out = np.ones(self.pp)
        out[0] *= self.first_stage
        out[-1] *= self.last_stage
        return out

    def dp_transfer_s(self) -> float:
        """Return the seconds of one gradient reduction once all ranks are there."""
        if self.dp == 1:
            return 0.0
        ring = 2 * (self.dp - 1) / self.dp
        return self.dp_s * (ring if self.collectives == "ring" else 2.0)
