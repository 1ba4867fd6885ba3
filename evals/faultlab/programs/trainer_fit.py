"""A transformers Trainer on one GPU whose batch is too big for its memory."""
# mypy: ignore-errors

from __future__ import annotations

import argparse

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

parser = argparse.ArgumentParser(prog="trainer_fit.py")
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--output", default="out")
options = parser.parse_args()


class Tokens(torch.utils.data.Dataset):
    """Random token sequences."""

    def __len__(self) -> int:
        return 20_000

    def __getitem__(self, index):
        tokens = torch.randint(0, 50_257, (512,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens}


model = GPT2LMHeadModel(GPT2Config(n_embd=128, n_layer=2, n_head=2, n_positions=512))
arguments = TrainingArguments(
    output_dir=options.output,
    per_device_train_batch_size=options.batch,
    max_steps=20,
    logging_steps=2,
    save_strategy="no",
    report_to=[],
)
Trainer(model=model, args=arguments, train_dataset=Tokens()).train()
