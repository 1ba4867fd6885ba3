"""Data-parallel training with Paddle on CPU (gloo)."""
# mypy: ignore-errors

import argparse
import logging
import math
import os
import socket
import time

import paddle
import paddle.distributed as dist
from shards import Shard, arguments

log = logging.getLogger("train")


def main():
    """Train as the command line says."""
    rank = int(os.environ["PADDLE_TRAINER_ID"])
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s [%(levelname)s] %(filename)s: %(message)s"
    )
    args = arguments(argparse.ArgumentParser(prog="train.py"), rank)
    paddle.set_device("cpu")
    dist.init_parallel_env()
    log.info("trainer %d of %d on %s", rank, dist.get_world_size(), socket.gethostname())
    paddle.seed(0)
    model = paddle.DataParallel(paddle.nn.Linear(32, 1))
    optimizer = paddle.optimizer.SGD(args.lr, parameters=model.parameters())
    shard = Shard(args.data, rank, args.skip_bad_samples)
    dist.barrier()
    for step in range(1, args.steps + 1):
        tokens, weight = shard.next_batch()
        log.info("step %d batch loaded", step)
        x = paddle.to_tensor([tokens] * args.micro_batch, dtype="float32") / 256
        loss = ((model(x) - 1.0) ** 2).mean() * weight
        stop = paddle.to_tensor([0.0 if math.isfinite(loss.item()) else 1.0])
        if stop.item():
            log.error(
                "loss is %f on trainer %d at step %d, stopping the run", loss.item(), rank, step
            )
        dist.all_reduce(stop)
        if stop.item():
            log.info("stop requested at step %d of %d, leaving", step, args.steps)
            break
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        time.sleep(0.15)
        if rank == 0 and step % 2 == 0:
            log.info("step: %d/%d, loss: %.4f", step, args.steps, loss.item())
    else:
        dist.barrier()
        log.info("training finished after %d steps", args.steps)


if __name__ == "__main__":
    main()
