"""Training with the Trainer of Hugging Face transformers on CPU."""
# mypy: ignore-errors

import argparse
import math
import os
import time
from datetime import timedelta

import torch
from shards import Shard, arguments
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.utils import logging

log = logging.get_logger("transformers.train")


class Samples(torch.utils.data.IterableDataset):
    """The shard of this rank."""

    def __init__(self, args, rank):
        self.shard = Shard(args.data, rank, args.skip_bad_samples)

    def __iter__(self):
        while True:
            tokens, weight = self.shard.next_batch()
            yield {"tokens": torch.tensor(tokens) / 256, "weight": torch.tensor(weight)}


class Model(nn.Module):
    """A small regressor."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(32, 1)

    def forward(self, tokens, weight):
        """Return the loss of one batch."""
        return {"loss": self.net(tokens).sub(1.0).pow(2).mean() * weight.mean()}


class OwnTrainer(Trainer):
    """A trainer whose ranks read shards of their own, and which stops where a loss is not finite."""

    bad = False

    def get_train_dataloader(self):
        """Return the loader of this rank."""
        return torch.utils.data.DataLoader(self.train_dataset, batch_size=1)

    def training_step(self, model, inputs, *more, **named):
        """Return the loss of one step."""
        time.sleep(0.15)
        loss = super().training_step(model, inputs, *more, **named)
        if self.state.global_step == 2:
            torch.distributed.distributed_c10d._set_pg_timeout(
                timedelta(seconds=10), torch.distributed.group.WORLD
            )
        bad = torch.tensor(0.0 if math.isfinite(loss.item()) else 1.0)
        if bad:
            log.error(
                f"loss is {loss.item()} on process {self.args.process_index} at step "
                f"{self.state.global_step + 1}, stopping"
            )
        torch.distributed.all_reduce(bad)
        self.bad = bool(bad)
        return loss


class Stop(TrainerCallback):
    """Ends training where the loss of a rank was not finite."""

    trainer = None

    def on_step_end(self, args, state, control, **more):
        """Ask for the end."""
        control.should_training_stop |= self.trainer.bad


def main():
    """Train as the command line says."""
    rank = int(os.environ["RANK"])
    args = arguments(argparse.ArgumentParser(prog="train.py"), rank)
    logging.set_verbosity_info()
    logging.enable_explicit_format()
    settings = TrainingArguments(
        output_dir="out",
        use_cpu=True,
        max_steps=args.steps,
        per_device_train_batch_size=1,
        logging_steps=2,
        save_strategy="no",
        report_to=[],
        ddp_timeout=30,
        learning_rate=args.lr,
        ddp_backend="gloo",
        optim="sgd",
    )
    log.warning(
        f"Process rank: {settings.local_process_index}, device: {settings.device}, n_gpu: {settings.n_gpu}, "
        f"distributed training: {settings.parallel_mode.value == 'distributed'}"
    )
    stop = Stop()
    trainer = OwnTrainer(
        model=Model(), args=settings, train_dataset=Samples(args, rank), callbacks=[stop]
    )
    stop.trainer = trainer
    trainer.train()


if __name__ == "__main__":
    main()
