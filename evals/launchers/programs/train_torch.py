"""Data-parallel training with torch.distributed (gloo)."""
# mypy: ignore-errors

import argparse
import logging
import math
import os
import socket
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from shards import Shard, arguments
from torch import nn
from torch.nn.parallel import DistributedDataParallel

log = logging.getLogger("train")


def main():
    """Train as the command line says."""
    rank = int(os.environ["RANK"])
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    args = arguments(argparse.ArgumentParser(prog="train.py"), rank)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    world = dist.get_world_size()
    log.info("rank %d of %d on %s, pid %d", rank, world, socket.gethostname(), os.getpid())
    torch.manual_seed(0)
    model = nn.Linear(32, 1)
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    shard = Shard(args.data, rank, args.skip_bad_samples)
    dist.barrier()
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=10), dist.group.WORLD)
    for step in range(1, args.steps + 1):
        started = time.monotonic()
        tokens, weight = shard.next_batch()
        log.info("step %d batch loaded", step)
        loss = (
            model(torch.tensor([tokens] * args.micro_batch) / 256).sub(1.0).pow(2).mean() * weight
        )
        stop = torch.tensor(0.0)
        if not math.isfinite(loss.item()):
            log.error("loss is %f on rank %d at step %d, stopping the run", loss.item(), rank, step)
            stop += 1
        dist.all_reduce(stop)
        if stop.item():
            log.info("stop requested at step %d of %d, leaving", step, args.steps)
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.15)
        if rank == 0 and step % 2 == 0:
            log.info(
                "step %d/%d loss %.4f (%.0f ms)",
                step,
                args.steps,
                loss.item(),
                1e3 * (time.monotonic() - started),
            )
    else:
        dist.barrier()
        log.info("training finished after %d steps", args.steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
