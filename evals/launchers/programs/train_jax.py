"""Data-parallel training with jax.distributed on CPU, one process per device."""
# mypy: ignore-errors

import argparse
import logging
import math
import os
import socket
import sys
import time

import jax
import jax.numpy as jnp
from jax.experimental import multihost_utils
from shards import Shard, arguments

log = logging.getLogger("train")


def main():
    """Train as the command line says."""
    index = int(os.environ["PROCESS_ID"])
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stdout,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    args = arguments(argparse.ArgumentParser(prog="train.py"), index)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        os.environ["COORDINATOR_ADDRESS"],
        num_processes=int(os.environ["NUM_PROCESSES"]),
        process_id=index,
        initialization_timeout=60,
        heartbeat_timeout_seconds=10,
        shutdown_timeout_seconds=10,
    )
    log.info(
        "process %d of %d on %s, %d devices",
        index,
        jax.process_count(),
        socket.gethostname(),
        jax.device_count(),
    )
    weights = jnp.zeros(32)
    shard = Shard(args.data, index, args.skip_bad_samples)

    @jax.jit
    def value_and_gradient(weights, x, weight):
        return jax.value_and_grad(lambda w: ((x @ w - 1.0) * weight) ** 2)(weights)

    for step in range(1, args.steps + 1):
        tokens, weight = shard.next_batch()
        log.info("step %d batch loaded", step)
        loss, gradient = value_and_gradient(weights, jnp.asarray(tokens) / 256.0, weight)
        loss = float(loss)
        if not math.isfinite(loss):
            log.error("loss is %f on process %d at step %d, stopping the run", loss, index, step)
        stop = multihost_utils.process_allgather(jnp.asarray(0 if math.isfinite(loss) else 1))
        if int(stop.sum()):
            log.info("stop requested at step %d of %d, leaving", step, args.steps)
            break
        weights = weights - args.lr * multihost_utils.process_allgather(gradient).mean(axis=0)
        time.sleep(0.15)
        if index == 0 and step % 2 == 0:
            log.info("step %d/%d loss %.4f", step, args.steps, loss)
    else:
        multihost_utils.sync_global_devices("end of training")
        log.info("training finished after %d steps", args.steps)


if __name__ == "__main__":
    main()
