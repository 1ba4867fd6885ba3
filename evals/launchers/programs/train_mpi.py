"""Data-parallel training of a linear model with numpy over MPI."""
# mypy: ignore-errors

import argparse
import logging
import math
import os
import time

import numpy as np
from mpi4py import MPI
from shards import Shard, arguments

log = logging.getLogger("train")


def main():
    """Train as the command line says."""
    comm = MPI.COMM_WORLD
    rank, world = comm.Get_rank(), comm.Get_size()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    args = arguments(argparse.ArgumentParser(prog="train.py"), rank)
    if rank == 0:
        log.info(
            "world size %d, %s", world, MPI.Get_library_version().split(",")[0].splitlines()[0]
        )
    log.info("started on %s pid %d", MPI.Get_processor_name(), os.getpid())
    weights = np.zeros(32)
    shard = Shard(args.data, rank, args.skip_bad_samples)
    comm.Barrier()
    for step in range(1, args.steps + 1):
        tokens, weight = shard.next_batch()
        log.info("step %d batch loaded", step)
        x = np.asarray(tokens, dtype=float) / 256
        error = (x @ weights - 1.0) * weight
        loss = error * error
        bad = np.array([0 if math.isfinite(loss) else 1])
        if bad[0]:
            log.error("loss is %f on rank %d at step %d, stopping the run", loss, rank, step)
        stop = np.zeros_like(bad)
        comm.Allreduce(bad, stop, op=MPI.MAX)
        if stop[0]:
            log.info("stop requested at step %d of %d, leaving", step, args.steps)
            break
        gradient = 2 * error * x
        total = np.empty_like(gradient)
        comm.Allreduce(gradient, total, op=MPI.SUM)
        weights -= args.lr * total / world
        time.sleep(0.2)
        if rank == 0 and step % 2 == 0:
            log.info("step %d/%d loss %.4f", step, args.steps, loss)
    else:
        comm.Barrier()
        log.info("training finished after %d steps", args.steps)


if __name__ == "__main__":
    main()
