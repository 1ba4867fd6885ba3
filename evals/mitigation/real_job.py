"""Four real gloo processes, one of them slow: share of the slowdown that a split recovers, and the loss.

The slow rank sleeps after each micro-batch, as a throttled GPU takes longer for each. Every run
trains on the same micro-batches; the loss of each step has to be that of the healthy run.
"""
# mypy: allow-untyped-calls, no-warn-unused-ignores

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rerail.evals.faultlab.machine import free_port

RANKS, TOTAL, STEPS, WARM = 4, 32, 24, 8
WORK_S, SLOWER_S = 0.012, 0.024


@dataclass(frozen=True)
class RealJob:
    """Median step times after the warm-up, in seconds, and the largest difference of the loss."""

    healthy_s: float
    slow_s: float
    mitigated_s: float
    counts: list[int]
    recovered: float
    possible: float
    loss_difference: float


def run_real_job() -> RealJob:
    """Run the healthy, the slow and the mitigated job, one after the other."""
    healthy = _run(slow=False, mitigate=False)
    slow = _run(slow=True, mitigate=False)
    mended = _run(slow=True, mitigate=True)
    times = [statistics.median(one["step_s"][WARM:]) for one in (healthy, slow, mended)]
    unit = [WORK_S, WORK_S, WORK_S + SLOWER_S, WORK_S]
    from rerail.recovery.mitigation.micro_batches import makespan_s, split

    even = [TOTAL // RANKS] * RANKS
    best = makespan_s(unit, split(unit, TOTAL))
    plain = makespan_s(unit, even)
    well = makespan_s([WORK_S] * RANKS, even)
    return RealJob(
        times[0],
        times[1],
        times[2],
        mended["counts"],
        (times[1] - times[2]) / (times[1] - times[0]),
        (plain - best) / (plain - well),
        _difference(healthy["loss"], mended["loss"]),
    )


def run_split(steps: int) -> tuple[list[int], float]:
    """Run a few steps of the healthy and of the mitigated job: micro-batches by rank, largest difference of the loss."""
    healthy = _run(slow=False, mitigate=False, steps=steps)
    mended = _run(slow=True, mitigate=True, steps=steps)
    return mended["counts"], _difference(healthy["loss"], mended["loss"])


def _difference(one: list[float], other: list[float]) -> float:
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


def _run(*, slow: bool, mitigate: bool, steps: int = STEPS) -> dict[str, Any]:
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="rerail-split-") as folder:
        out = Path(folder) / "result.json"
        children = [
            subprocess.Popen(
                [sys.executable, "-m", "rerail.evals.mitigation.real_job", str(out)],
                env={
                    **os.environ,
                    **{"RANK": str(rank), "WORLD_SIZE": str(RANKS), "OMP_NUM_THREADS": "1"},
                    **{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)},
                    **{"JOB_SLOW": str(int(slow)), "JOB_SPLIT": str(int(mitigate))},
                    **{"JOB_STEPS": str(steps)},
                },
            )
            for rank in range(RANKS)
        ]
        try:
            for child in children:
                child.wait(timeout=180)
        finally:
            for child in children:
                child.kill()
        result: dict[str, Any] = json.loads(out.read_text())
    return result


def main(out: Path) -> None:
    """Train as one rank."""
    import torch
    import torch.distributed as dist
    from torch import nn

    from rerail.evals.mitigation.split_step import gather, train_step
    from rerail.recovery.mitigation.loop import MicroBatchPlan

    rank = int(os.environ["RANK"])
    slow, mitigate = os.environ["JOB_SLOW"] == "1", os.environ["JOB_SPLIT"] == "1"
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1)).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    plan = MicroBatchPlan(rank, RANKS, TOTAL, gather, every=4)
    losses, step_s = [], []
    for step in range(int(os.environ["JOB_STEPS"])):
        began = time.perf_counter()
        unit_s = WORK_S + (SLOWER_S if slow and rank == 2 else 0.0)
        loss = train_step(plan, model, optimizer, step * TOTAL, TOTAL, unit_s)
        losses.append(loss)
        step_s.append(time.perf_counter() - began)
        if mitigate:
            plan.after_step()
    if rank == 0:
        out.write_text(json.dumps({"loss": losses, "step_s": step_s, "counts": plan.counts}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
