"""Training with Lightning's Trainer, ddp on CPU."""
# mypy: ignore-errors

import argparse
import logging
import math
import os
import time
from datetime import timedelta

import lightning as L
import torch
from lightning.pytorch.strategies import DDPStrategy
from shards import Shard, arguments
from torch import nn

log = logging.getLogger("train")


class Samples(torch.utils.data.IterableDataset):
    """The shard of this rank, read anew in every epoch."""

    def __init__(self, args):
        self.args = args

    def __iter__(self):
        shard = Shard(self.args.data, torch.distributed.get_rank(), self.args.skip_bad_samples)
        for _ in range(self.args.steps):
            yield shard.next_batch()


class Model(L.LightningModule):
    """A small regressor."""

    def __init__(self, lr):
        super().__init__()
        self.net = nn.Linear(32, 1)
        self.lr = lr

    def training_step(self, batch, index):
        """Return the loss of one batch."""
        tokens, weight = batch
        loss = self.net(torch.stack(tokens, 1) / 256).sub(1.0).pow(2).mean() * weight.mean()
        if index == 2:
            torch.distributed.distributed_c10d._set_pg_timeout(
                timedelta(seconds=10), torch.distributed.group.WORLD
            )
        time.sleep(0.15)
        if self.global_rank == 0 and index % 2 == 0:
            log.info("step %d loss %.4f", index, loss.item())
        if not math.isfinite(loss.item()):
            log.error(
                "global rank %d: loss is %f at step %d, stopping",
                self.global_rank,
                loss.item(),
                index,
            )
            self.bad = True
        return loss

    bad = False

    def on_train_batch_end(self, outputs, batch, index):
        """Stop on all ranks where the loss of one is not finite."""
        flag = self.trainer.strategy.reduce_boolean_decision(self.bad, all=False)
        if flag:
            self.trainer.should_stop = True

    def configure_optimizers(self):
        """Return the optimizer."""
        return torch.optim.SGD(self.parameters(), lr=self.lr)


def main():
    """Train as the command line says."""
    logging.basicConfig(
        level=logging.INFO, format="[%(asctime)s][%(name)s][%(levelname)s] - %(message)s"
    )
    nodes, devices = int(os.environ["NUM_NODES"]), int(os.environ["DEVICES"])
    rank = int(os.environ["NODE_RANK"]) * devices + int(os.environ.get("LOCAL_RANK", "0"))
    args = arguments(argparse.ArgumentParser(prog="train.py"), rank)
    trainer = L.Trainer(
        accelerator="cpu",
        num_nodes=nodes,
        devices=devices,
        strategy=DDPStrategy(process_group_backend="gloo", timeout=timedelta(seconds=30)),
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        use_distributed_sampler=False,
        min_steps=None,
    )
    trainer.fit(
        Model(args.lr), torch.utils.data.DataLoader(Samples(args), batch_size=1, num_workers=0)
    )


if __name__ == "__main__":
    main()
