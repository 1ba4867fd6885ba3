"""Trains a deep network on one GPU (or the CPU) and logs every step, as a first trainer does."""
# mypy: allow-untyped-calls

from __future__ import annotations

import argparse
import logging
import math
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

log = logging.getLogger("fit")
TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="fit.py")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--type", choices=TYPES, default="float32")
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--classes", type=int, default=16)
    parser.add_argument("--micro-batch", type=int, default=256)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--warmup", type=int, default=0, help="steps until the rate is reached")
    parser.add_argument(
        "--replay-leave-mib", type=int, help="keep all but this for the replay buffer"
    )
    parser.add_argument("--memory-fraction", type=float, default=1.0)
    parser.add_argument("--halve-on-oom", action="store_true")
    parser.add_argument("--label-shift-at", type=int, default=-1)
    parser.add_argument("--log-every", type=int, default=1)
    return parser.parse_args()


def build_model(options: argparse.Namespace) -> nn.Sequential:
    """Return a stack of equal layers and a classifier."""
    layers: list[nn.Module] = []
    for _ in range(options.layers):
        layers += [nn.Linear(options.width, options.width), nn.GELU()]
    return nn.Sequential(*layers, nn.Linear(options.width, options.classes))


def draw(options: argparse.Namespace, step: int) -> tuple[Any, Any]:
    """Return a batch whose labels can be learned."""
    size = (options.micro_batch, options.width)
    inputs = torch.randn(size, device=options.device, dtype=TYPES[options.type])
    labels = inputs[:, : options.classes].argmax(1)
    return inputs, labels + 1 if step == options.label_shift_at else labels


def one_step(
    options: argparse.Namespace, model: Any, optimizer: Any, step: int
) -> tuple[float, float]:
    """Train one step; return its loss and the time that the data took."""
    optimizer.zero_grad(set_to_none=True)
    total, waited = 0.0, 0.0
    for _ in range(options.accumulate):
        began = time.monotonic()
        inputs, labels = draw(options, step)
        waited += time.monotonic() - began
        loss = nn.functional.cross_entropy(model(inputs), labels) / options.accumulate
        loss.backward()
        total += float(loss.detach())
    if not math.isfinite(total):
        raise FloatingPointError(f"loss is {total} at step {step}")
    optimizer.step()
    return total, waited


def train(options: argparse.Namespace) -> None:
    """Run the training loop."""
    torch.manual_seed(1)
    model = build_model(options).to(options.device, TYPES[options.type])
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)
    kept = None
    if options.replay_leave_mib is not None:
        torch.cuda.empty_cache()
        free, _ = torch.cuda.mem_get_info()
        size = free - (options.replay_leave_mib << 20)
        kept = torch.empty(size, dtype=torch.uint8, device=options.device)
        log.info("replay buffer of %.1f GiB on %s", kept.numel() / 2**30, kept.device)
    end, step = time.monotonic() + options.seconds, 0
    while step < options.steps and time.monotonic() < end:
        step += 1
        for group in optimizer.param_groups:
            group["lr"] = options.lr * min(1.0, step / max(1, options.warmup))
        began = time.monotonic()
        try:
            loss, waited = one_step(options, model, optimizer, step)
        except torch.cuda.OutOfMemoryError:
            if not options.halve_on_oom or options.micro_batch == 1:
                raise
            log.warning("out of memory at micro-batch %d", options.micro_batch, exc_info=True)
            options.micro_batch //= 2
            options.accumulate *= 2
            torch.cuda.empty_cache()
            log.warning("retrying step %d with micro-batch %d", step, options.micro_batch)
            step -= 1
            continue
        if step % options.log_every == 0:
            log.info(
                "step %d loss %.4f step_time %.4fs data_time %.4fs",
                *(step, loss, time.monotonic() - began, waited),
            )
    log.info("training complete: %d steps", step)


def main() -> None:
    """Set up and train."""
    options = parse_arguments()
    logging.basicConfig(
        stream=sys.stdout, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    log.info("%s torch %s", Path(sys.argv[0]).name, torch.__version__)
    if options.device == "cuda":
        log.info("device %s", torch.cuda.get_device_name(0))
        torch.cuda.set_per_process_memory_fraction(options.memory_fraction)
    train(options)


if __name__ == "__main__":
    main()
