"""A Lightning trainer on one GPU whose batch is too big for its memory."""
# mypy: ignore-errors

from __future__ import annotations

import argparse

import lightning
import torch
from lightning.pytorch.plugins.environments import LightningEnvironment
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser(prog="lightning_fit.py")
parser.add_argument("--batch", type=int, default=256)
options = parser.parse_args()


class Classifier(lightning.LightningModule):
    """Two layers over a wide vocabulary."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 400_000))

    def training_step(self, batch, index):
        """Return the loss of a batch."""
        inputs, labels = batch
        loss = nn.functional.cross_entropy(self.net(inputs), labels)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        """Return the optimizer."""
        return torch.optim.AdamW(self.parameters())


samples = TensorDataset(torch.randn(options.batch * 2, 64), torch.zeros(options.batch * 2).long())
trainer = lightning.Trainer(
    accelerator="gpu",
    devices=1,
    max_epochs=1,
    logger=False,
    # Otherwise Lightning asks mpi4py, which wants an MPI that is installed in full.
    plugins=[LightningEnvironment()],
    enable_checkpointing=False,
    log_every_n_steps=1,
)
trainer.fit(Classifier(), DataLoader(samples, batch_size=options.batch))
