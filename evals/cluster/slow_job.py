"""A real two-node gloo job with a slow rank, which follows the micro-batch orders of recovery.

The slow rank sleeps after each micro-batch, as a throttled GPU takes longer for each. Gradients
are summed over both ranks and divided by the total, so the split changes no update.
"""
# mypy: allow-untyped-calls, no-warn-unused-ignores

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from rerail.evals.cluster.job import say
from rerail.evals.mitigation.split_step import gather, train_step
from rerail.recovery.mitigation.loop import MicroBatchPlan

TOTAL = 8
UNIT_S = 0.03


def main() -> None:
    """Join the group that srun started, train all steps, leave."""
    parser = argparse.ArgumentParser(prog="train.py")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--slower", type=float, default=5.0)
    options = parser.parse_args()
    rank, world = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world))
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    say(rank, f"host {os.environ.get('SLURMD_NODENAME')} world_size {world}")

    folder = options.folder
    plan = MicroBatchPlan(
        *(rank, world, TOTAL, gather, 2),
        record=folder / "speeds.jsonl",
        orders=folder / "micro_batches.json",
    )
    model = nn.Linear(16, 1).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    unit_s = UNIT_S * (options.slower if rank == 1 else 1.0)
    for step in range(1, options.steps + 1):
        began = time.monotonic()
        loss = train_step(plan, model, optimizer, step * TOTAL, TOTAL, unit_s)
        if rank == 0:
            took = time.monotonic() - began
            say(0, f"step {step} loss {loss:.4f} step_time {took:.4f}s")
        if plan.after_step() and rank == 0:
            say(0, f"micro-batches are {plan.counts} from step {step + 1}")
    if rank == 0:
        say(0, f"training complete: {options.steps} steps")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
