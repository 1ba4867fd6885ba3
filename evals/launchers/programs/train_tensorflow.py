"""Data-parallel training with TensorFlow's MultiWorkerMirroredStrategy on CPU."""
# mypy: ignore-errors

import argparse
import json
import logging
import math
import os
import socket
import time

import tensorflow as tf
from shards import Shard, arguments

log = logging.getLogger("train")


def main():
    """Train as the command line says."""
    index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    logging.basicConfig(level=logging.INFO, format="%(levelname)s:%(name)s:%(message)s")
    args = arguments(argparse.ArgumentParser(prog="train.py"), index)
    strategy = tf.distribute.MultiWorkerMirroredStrategy(
        communication_options=tf.distribute.experimental.CommunicationOptions(
            implementation=tf.distribute.experimental.CommunicationImplementation.RING,
            timeout_seconds=12,
        )
    )
    log.info("worker %d on %s, pid %d", index, socket.gethostname(), os.getpid())
    shard = Shard(args.data, index, args.skip_bad_samples)
    with strategy.scope():
        weights = tf.Variable(tf.zeros([32]))

    @tf.function
    def train_step(x, weight):
        def local(x, weight):
            with tf.GradientTape() as tape:
                loss = tf.square(tf.reduce_sum(x * weights) - 1.0) * weight
            gradient = tape.gradient(loss, weights)
            bad = tf.cast(tf.logical_not(tf.math.is_finite(loss)), tf.float32)
            replica = tf.distribute.get_replica_context()
            bad = replica.all_reduce(tf.distribute.ReduceOp.SUM, bad)
            gradient = replica.all_reduce(tf.distribute.ReduceOp.MEAN, gradient)
            return loss, bad, gradient

        return strategy.run(local, args=(x, weight))

    for step in range(1, args.steps + 1):
        tokens, weight = shard.next_batch()
        log.info("step %d batch loaded", step)
        x = tf.constant([one / 256 for one in tokens], tf.float32)
        loss, stop, gradient = train_step(x, tf.constant(weight, tf.float32))
        if not math.isfinite(float(loss)):
            log.error(
                "loss is %f on worker %d at step %d, stopping the run", float(loss), index, step
            )
        if float(stop):
            log.info("stop requested at step %d of %d, leaving", step, args.steps)
            break
        weights.assign_sub(args.lr * gradient)
        time.sleep(0.15)
        if index == 0 and step % 2 == 0:
            log.info("step %d/%d loss = %.4f", step, args.steps, float(loss))
    else:
        log.info("training finished after %d steps", args.steps)


if __name__ == "__main__":
    main()
