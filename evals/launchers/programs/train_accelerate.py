"""Training with Hugging Face accelerate on CPU."""
# mypy: ignore-errors

import argparse
import math
import os
import time
from datetime import timedelta

import torch
from accelerate import Accelerator, InitProcessGroupKwargs
from accelerate.logging import get_logger
from shards import Shard, arguments
from torch import nn

log = get_logger("train")


def main():
    """Train as the command line says."""
    import logging

    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s - %(levelname)s - %(name)s - %(message)s",
        datefmt="%m/%d/%Y %H:%M:%S",
    )
    args = arguments(argparse.ArgumentParser(prog="train.py"), int(os.environ.get("RANK", "0")))
    accelerator = Accelerator(
        cpu=True, kwargs_handlers=[InitProcessGroupKwargs(timeout=timedelta(seconds=30))]
    )
    log.info(accelerator.state, main_process_only=False)
    torch.manual_seed(0)
    model = nn.Linear(32, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=args.lr))
    shard = Shard(args.data, accelerator.process_index, args.skip_bad_samples)
    accelerator.wait_for_everyone()
    torch.distributed.distributed_c10d._set_pg_timeout(
        timedelta(seconds=10), torch.distributed.group.WORLD
    )
    for step in range(1, args.steps + 1):
        tokens, weight = shard.next_batch()
        loss = (
            model(torch.tensor([tokens] * args.micro_batch) / 256).sub(1.0).pow(2).mean() * weight
        )
        losses = accelerator.gather(loss.detach().reshape(1))
        bad = [i for i, one in enumerate(losses.tolist()) if not math.isfinite(one)]
        if bad:
            log.error(
                f"non-finite loss at step {step} on process {bad[0]}, training stopped",
                main_process_only=True,
            )
            break
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.15)
        if step % 2 == 0:
            log.info(f"step {step}: loss {losses.mean().item():.4f}", main_process_only=True)
    else:
        accelerator.wait_for_everyone()
        log.info(f"***** training finished, {args.steps} steps *****", main_process_only=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
