"""A real DDP training job (gloo, CPU) for the recovery scenarios, run by srun, one task per node.

Model and loss are those of the fault lab. On top of them: batches are numbered, step n trains on
batch n, checkpoints hold the list of batches that went into them, and the restart file decides
from where to go on and which batches to leave out. So the lineage of the final checkpoint shows
whether any data was lost or repeated.
"""
# mypy: allow-untyped-calls, no-warn-unused-ignores

from __future__ import annotations

import argparse
import faulthandler
import json
import math
import os
import signal
import sys
import time
from collections import deque
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from rerail.evals.cluster.job_faults import misbehave
from rerail.evals.faultlab.train import build_model, next_token_loss
from rerail.recovery.restart_file import Restart, read_restart

GUARD_STEPS = 10
SAMPLES = 4
WIDTH = 33


def batch_of(
    number: int, rank: int, poisoned: int | None = None, garbled: int | None = None
) -> dict[str, Any]:
    """Return batch `number` of a rank.

    The poisoned one has weights of zero, so its mean is NaN; the garbled one holds noise in place of
    sequences, so its loss is finite and far too high.
    """
    draw = torch.Generator().manual_seed(1000 * number + rank)
    first = torch.randint(0, 128, (SAMPLES, 1), generator=draw)
    stride = torch.randint(1, 4, (SAMPLES, 1), generator=draw)
    tokens = (first + stride * torch.arange(WIDTH)) % 128
    if number == garbled:
        tokens = torch.randint(0, 128, tokens.shape, generator=draw)
    weight = torch.zeros(SAMPLES) if number == poisoned else torch.ones(SAMPLES)
    return {"tokens": tokens, "weight": weight}


def say(rank: int, text: str) -> None:
    """Print one line with time and rank."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
    print(f"{stamp} [rank{rank}] INFO {text}", flush=True)


def choose_checkpoint(folder: Path, restart: Restart, rank: int) -> Path | None:
    """Return what to resume from: the newest checkpoint made under the present orders.

    Checkpoints of an abandoned timeline (from before a roll-back was ordered) are passed over.
    """
    newest = sorted(folder.glob("step_*.pt"), reverse=True)
    if not restart.plan:
        return newest[0] if newest else None
    for path in newest:
        try:
            if torch.load(path, map_location="cpu").get("plan") == restart.plan:
                return path
        except Exception as error:  # any damage means: not one of ours
            say(rank, f"passing over {path.name}: {type(error).__name__}")
    return Path(restart.checkpoint) if restart.checkpoint else None


def guard(recent: deque[float], value: float, limit: float) -> None:
    """End the job at a loss spike, as guards of training frameworks do; the step is not named.

    Raises:
        RuntimeError: The loss is `limit` times the median of the steps before it.
    """
    if limit and len(recent) == GUARD_STEPS and value > limit * median(recent):
        raise RuntimeError(
            f"loss spike: {value:.4f} is above {limit:g} times the median of the last "
            f"{GUARD_STEPS} losses ({median(recent):.4f}), stopping"
        )
    recent.append(value)


def save(path: Path, content: dict[str, Any]) -> None:
    """Write a checkpoint at once or not at all."""
    temporary = path.with_suffix(".tmp")
    torch.save(content, temporary)
    temporary.replace(path)


def train(options: argparse.Namespace, rank: int, attempt: int) -> None:
    """Train over the numbered batches, from the checkpoint that the orders name."""
    restart = read_restart(options.folder / "restart.json")
    plain = build_model(32)
    optimizer = torch.optim.AdamW(plain.parameters(), lr=3e-3)
    consumed: list[int] = []
    path = choose_checkpoint(options.folder / "ckpt", restart, rank)
    if path is not None:
        content = torch.load(path, map_location="cpu")
        plain.load_state_dict(content["model"])
        optimizer.load_state_dict(content["optimizer"])
        consumed = list(content["consumed"])
        say(rank, f"resumed from {path.name} at step {content['step']}")
    model = DistributedDataParallel(plain)
    dist.barrier()
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=options.timeout_s))
    start = (consumed[-1] if consumed else 0) + 1
    recent: deque[float] = deque(maxlen=GUARD_STEPS)
    for step in range(start, options.steps + 1):
        if restart.skips(step):
            say(rank, f"batch {step} is left out by order of {restart.plan}")
            continue
        began = time.monotonic()
        misbehave(options.fault, rank, step, attempt)
        loss = next_token_loss(model, batch_of(step, rank, options.poisoned, options.garbled))
        value = float(loss.detach())
        if not math.isfinite(value):
            raise FloatingPointError(f"loss is {value} at step {step}")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(max(0.0, options.step_time_s - (time.monotonic() - began)))
        consumed.append(step)
        if rank == 0:
            say(0, f"step {step} loss {value:.4f} step_time {time.monotonic() - began:.4f}s")
        guard(recent, value, options.guard)
        if step % options.save_every == 0 or step == options.steps:
            if rank == 0:
                content = {
                    "model": plain.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "step": step,
                    "consumed": consumed,
                    "plan": restart.plan,
                }
                save(options.folder / "ckpt" / f"step_{step:06d}.pt", content)
                say(0, f"saved checkpoint step_{step:06d}")
            dist.barrier()
    if rank == 0:
        (options.folder / "lineage.json").write_text(json.dumps(consumed))
        say(0, f"training complete: {options.steps} steps")


def main() -> None:
    """Join the group that srun started, train, leave."""
    parser = argparse.ArgumentParser(prog="train.py")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--save-every", type=int, default=10)
    parser.add_argument("--step-time-s", type=float, default=0.1)
    parser.add_argument("--timeout-s", type=float, default=60)
    parser.add_argument("--fault", default="")
    parser.add_argument("--poisoned", type=int)
    parser.add_argument("--garbled", type=int)
    parser.add_argument("--guard", type=float, default=0.0)
    options = parser.parse_args()
    faulthandler.register(signal.SIGUSR1, file=sys.stderr, all_threads=True)
    rank, world = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
    attempt = int(os.environ.get("SLURM_RESTART_COUNT", "0"))
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world))
    torch.set_num_threads(1)
    (options.folder / "ckpt").mkdir(exist_ok=True)
    say(rank, f"host {os.environ.get('SLURMD_NODENAME')} world_size {world} attempt {attempt}")
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    train(options, rank, attempt)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
