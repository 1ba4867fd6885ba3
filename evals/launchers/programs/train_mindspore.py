"""Data-parallel training with MindSpore on CPU, started by msrun."""
# mypy: ignore-errors

import argparse
import math
import os
import socket
import time

import mindspore as ms
import numpy as np
from mindspore import log, nn, ops
from mindspore.communication import get_group_size, get_rank, init
from shards import Shard, arguments


def main():
    """Train as the command line says."""
    ms.set_device("CPU")
    init()
    rank = get_rank()
    args = arguments(argparse.ArgumentParser(prog="train.py"), rank)
    print(
        f"rank {rank} of {get_group_size()} on {socket.gethostname()}, pid {os.getpid()}",
        flush=True,
    )
    weights = ms.Parameter(ms.Tensor(np.zeros((32,), np.float32)), name="weights")
    all_reduce = ops.AllReduce()

    def forward(x, weight):
        return ((x * weights).sum() - 1.0) ** 2 * weight

    gradient_of = ms.value_and_grad(forward, None, [weights])
    optimizer = nn.SGD([weights], learning_rate=args.lr)
    shard = Shard(args.data, rank, args.skip_bad_samples)
    for step in range(1, args.steps + 1):
        tokens, weight = shard.next_batch()
        x = ms.Tensor(np.asarray(tokens, np.float32) / 256)
        loss, gradients = gradient_of(x, ms.Tensor(weight, ms.float32))
        bad = not math.isfinite(float(loss))
        if bad:
            log.error("loss is %f on rank %d at step %d, stopping the run", float(loss), rank, step)
        stop = all_reduce(ms.Tensor([1.0 if bad else 0.0], ms.float32))
        if float(stop[0]):
            print(f"stop requested at step {step} of {args.steps}, leaving", flush=True)
            break
        optimizer(tuple(all_reduce(one) for one in gradients))
        time.sleep(0.15)
        if rank == 0 and step % 2 == 0:
            print(f"epoch: 1 step: {step}, loss is {float(loss):.6f}", flush=True)
    else:
        print(f"training finished after {args.steps} steps", flush=True)


if __name__ == "__main__":
    main()
