"""Training with Ray Train's TorchTrainer, one worker per CPU."""
# mypy: ignore-errors

import argparse
import logging
import math
import time
from datetime import timedelta

import ray
import ray.train
import torch
from ray.train.torch import TorchConfig, TorchTrainer, prepare_model
from shards import Shard, arguments
from torch import nn


def train_loop(config):
    """Train on one worker."""
    log = logging.getLogger("train")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    rank = ray.train.get_context().get_world_rank()
    args = arguments(argparse.ArgumentParser(prog="train.py"), rank)
    torch.manual_seed(0)
    model = prepare_model(nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    shard = Shard(args.data, rank, args.skip_bad_samples)
    torch.distributed.barrier()
    torch.distributed.distributed_c10d._set_pg_timeout(
        timedelta(seconds=10), torch.distributed.group.WORLD
    )
    for step in range(1, args.steps + 1):
        tokens, weight = shard.next_batch()
        log.info("step %d batch loaded", step)
        loss = (
            model(torch.tensor([tokens] * args.micro_batch) / 256).sub(1.0).pow(2).mean() * weight
        )
        stop = torch.tensor(0.0)
        if not math.isfinite(loss.item()):
            log.error("loss is %f on rank %d at step %d, stopping the run", loss.item(), rank, step)
            stop += 1
        torch.distributed.all_reduce(stop)
        if stop.item():
            log.info("stop requested at step %d of %d, leaving", step, args.steps)
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.15)
        ray.train.report({"loss": loss.item(), "step": step})
    else:
        log.info("training finished after %d steps", args.steps)


if __name__ == "__main__":
    import os
    import sys

    words = sys.argv[1:]

    def with_arguments(config):
        """Train in the folder of the job, with its arguments."""
        sys.argv = ["train.py", *words]
        os.chdir(config["folder"])
        train_loop(config)

    ray.init(address="auto")
    trainer = TorchTrainer(
        with_arguments,
        train_loop_config={"folder": os.getcwd()},
        scaling_config=ray.train.ScalingConfig(num_workers=4),
        torch_config=TorchConfig(backend="gloo", timeout_s=30),
        run_config=ray.train.RunConfig(storage_path=os.getcwd() + "/ray", name="run"),
    )
    result = trainer.fit()
    print("metrics:", result.metrics)
