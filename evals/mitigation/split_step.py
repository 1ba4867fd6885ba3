"""One training step over this rank's micro-batches, in which each takes as long as it is told."""
# mypy: allow-untyped-calls, no-warn-unused-ignores

from __future__ import annotations

import time
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from rerail.recovery.mitigation.loop import MicroBatchPlan

SAMPLES = 2


def gather(value: float) -> list[float]:
    """Return the value of every rank, in order of ranks."""
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return found


def train_step(
    plan: MicroBatchPlan, model: nn.Module, optimizer: Any, first: int, total: int, unit_s: float
) -> float:
    """Train the micro-batches of `plan` and update as the unsplit step would; return the mean loss.

    Args:
        plan: which of the step's micro-batches this rank has; told how long each took.
        model: takes 16 numbers and gives one.
        optimizer: updates the model's parameters.
        first: number of the step's first micro-batch in the run; seeds its data.
        total: micro-batches of the step over all ranks.
        unit_s: seconds that a micro-batch takes on this rank.
    """
    optimizer.zero_grad()
    loss_sum = torch.zeros(1, dtype=torch.float64)
    for number in plan.mine:
        began = time.perf_counter()
        draw = torch.Generator().manual_seed(first + number)
        inputs = torch.randn((SAMPLES, 16), generator=draw, dtype=torch.float64)
        loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
        loss.backward()
        loss_sum += loss.detach()
        time.sleep(max(0.0, unit_s - (time.perf_counter() - began)))
        plan.ran(time.perf_counter() - began)
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad.div_(plan.gradient_divisor)  # type: ignore[union-attr]
    dist.all_reduce(loss_sum)
    optimizer.step()
    return float(loss_sum) / total
