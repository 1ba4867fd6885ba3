"""A small but real DDP training job (gloo): tiny transformer, own data loader, checkpoints.

The job does not know how it will fail. `--hooks NAME` plugs one object of the `faults_*` modules
into the places where real trainers get extended; everything that such a run prints is printed by
Python, torch, libc or the kernel, never made up.
"""
# torch is typed only where it is installed; these switches make both worlds check alike.
# mypy: allow-untyped-calls, allow-untyped-decorators, no-warn-unused-ignores

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import socket
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from rerail.evals.faultlab.faults import Hooks, State, load

hooks: Hooks = load(os.environ.get("JOB_HOOKS", ""))
hooks.on_import()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.elastic.multiprocessing.errors import record  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

VOCABULARY = 128
SEQUENCE = 32
log = logging.getLogger("trainer")


class Shard:
    """One JSON-lines shard of token sequences, parsed when a sample is asked for."""

    def __init__(self, path: Path) -> None:
        with path.open() as lines:
            self.lines = lines.readlines()

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, index: int) -> dict[str, Any]:
        hooks.on_sample(int(os.environ["RANK"]), index)
        sample = json.loads(self.lines[index])
        return {"tokens": torch.tensor(sample["tokens"]), "weight": float(sample["weight"])}


def parse_arguments() -> argparse.Namespace:
    """Read the command line of the job."""
    parser = argparse.ArgumentParser(prog="train.py")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--checkpoints", type=Path, required=True)
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--save-every", type=int, default=20)
    parser.add_argument("--log-every", type=int, default=5)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--loader-timeout", type=float, default=0)
    parser.add_argument("--collective-timeout", type=float, default=8)
    parser.add_argument("--init-timeout", type=float, default=90)
    parser.add_argument("--dcp", action="store_true", help="save sharded checkpoints")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument(
        "--device",
        choices=("cpu", "cuda", "local"),
        default="cpu",
        help="cpu, the first GPU for all ranks, or the GPU of the local rank",
    )
    parser.add_argument("--no-finite-check", action="store_true")
    return parser.parse_args()


def start_logging() -> None:
    """Log to standard output with the time and the rank, as trainers do."""
    rank = os.environ.get("RANK", "?")
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter(f"%(asctime)s [rank{rank}] %(levelname)s %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False


def pick_device(choice: str) -> torch.device:
    """Return the device of this rank and make it the current one."""
    if choice == "cpu":
        return torch.device("cpu")
    index = int(os.environ["LOCAL_RANK"]) if choice == "local" else 0
    torch.cuda.set_device(index)
    return torch.device("cuda", index)


def build_model(width: int) -> nn.Sequential:
    """Return a one-layer language model."""
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Embedding(VOCABULARY, width),
        nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=0.0, batch_first=True),
        nn.Linear(width, VOCABULARY),
    )


def next_token_loss(model: Any, batch: dict[str, Any]) -> Any:
    """Return the weighted mean cross-entropy of the next token."""
    tokens = batch["tokens"]
    logits = model(tokens[:, :-1])
    losses = nn.functional.cross_entropy(logits.transpose(1, 2), tokens[:, 1:], reduction="none")
    weight = batch["weight"][:, None].to(losses.dtype)
    return (losses * weight).sum() / (weight.sum() * losses.shape[1])


def newest_checkpoint(folder: Path) -> Path | None:
    """Return the checkpoint with the highest step, if there is one."""
    return max(folder.glob("step_*.pt"), default=None)


def load_checkpoint(path: Path, model: Any, optimizer: Any) -> int:
    """Fill the model and the optimizer; return the step to go on from."""
    checkpoint = torch.load(path, map_location="cpu")
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    return int(checkpoint["step"])


def save_checkpoint(folder: Path, state: State, model: Any, optimizer: Any, sharded: bool) -> None:
    """Save model and optimizer; rank 0 writes, unless the checkpoint is sharded."""
    content = {
        "model": model.module.state_dict(),
        "optimizer": optimizer.state_dict(),
        "step": state.step,
    }
    if sharded:
        import torch.distributed.checkpoint as dcp

        dcp.save(content, checkpoint_id=folder / f"step_{state.step:06d}")  # type: ignore[attr-defined]
    elif state.rank == 0:
        torch.save(content, folder / f"step_{state.step:06d}.pt")
    dist.barrier()
    if state.rank == 0:
        log.info("saved checkpoint step_%06d", state.step)


def train(options: argparse.Namespace, state: State) -> None:
    """Run the training loop."""
    device = pick_device(options.device)
    plain = build_model(options.width).to(device)
    optimizer = torch.optim.AdamW(plain.parameters(), lr=options.lr)
    path = options.resume or newest_checkpoint(options.checkpoints)
    if path:
        state.step = load_checkpoint(path, plain, optimizer)
        log.info("resumed from %s at step %d", path.name, state.step)
    hooks.on_model(state, plain)
    model = DistributedDataParallel(torch.compile(plain) if options.compile else plain)  # type: ignore[arg-type]
    shard = Shard(options.data / f"shard_{state.rank:03d}.jsonl")
    log.info("shard_%03d.jsonl: %d samples", state.rank, len(shard))
    loader: Any = DataLoader(
        shard,  # type: ignore[arg-type]
        batch_size=options.batch_size,
        num_workers=1,
        timeout=options.loader_timeout,
    )
    dist.barrier()
    # The time-out of the training collectives is short, that of the start is not: a busy machine
    # needs longer to import torch four times than a hang needs to be seen.
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=options.collective_timeout))
    batches = iter(loader)
    state.workers = [worker.pid for worker in getattr(batches, "_workers", [])]
    beat = 2 * options.log_every
    waited = computing = 0.0
    ended = time.monotonic()
    for batch in batches:
        if state.step >= options.steps:
            break
        state.step += 1
        started = time.monotonic()
        hooks.before_step(state, model)
        if state.stop:
            log.info("early stopping at step %d", state.step)
            return
        loss = next_token_loss(model, {key: part.to(device) for key, part in batch.items()})
        value = float(loss.detach())
        if not options.no_finite_check and not math.isfinite(value):
            raise FloatingPointError(f"loss is {value} at step {state.step}")
        waited += started - ended
        computing += time.monotonic() - started
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        hooks.after_step(state, value)
        now = time.monotonic()
        if state.step % options.log_every == 0 and state.rank == 0:
            log.info(
                "step %d loss %.4f grad_norm %.4f step_time %.4fs",
                *(state.step, value, float(norm), now - ended),
            )
        if state.step % beat == 0:
            log.info(
                "heartbeat step %d mean data_time %.4fs mean forward_time %.4fs",
                *(state.step, waited / beat, computing / beat),
            )
            waited = computing = 0.0
        if state.step % options.save_every == 0:
            save_checkpoint(options.checkpoints, state, model, optimizer, options.dcp)
        ended = time.monotonic()
    hooks.after_training(state)
    dist.barrier()
    log.info("training complete: %d steps", state.step)


@record
def main() -> None:
    """Join the group, train, leave the group."""
    options = parse_arguments()
    start_logging()
    rank = int(os.environ.get("RANK", "0"))
    attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    state = State(rank=rank, attempt=attempt, root=options.data.parent, log=log)
    log.info(
        "host %s pid %d world_size %s attempt %d torch %s",
        *(socket.gethostname(), os.getpid(), os.environ.get("WORLD_SIZE", "?"), attempt),
        torch.__version__,
    )
    torch.set_num_threads(1)
    hooks.before_init(state)
    dist.init_process_group("gloo", timeout=timedelta(seconds=options.init_timeout))
    state.world = dist.get_world_size()
    train(options, state)
    if not state.stop:
        dist.destroy_process_group()
    hooks.on_exit(state)


if __name__ == "__main__":
    main()
