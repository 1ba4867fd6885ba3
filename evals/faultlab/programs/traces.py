"""Records torch.profiler traces of ten steps of one training loop, plain and disturbed.

Run it as `python traces.py FOLDER --with NAME...`: plain, slow_loader, item_each_micro_step, and
neighbour, for which `neighbour.py --burn-for` runs beside it.
"""
# mypy: allow-untyped-calls

from __future__ import annotations

import argparse
import gzip
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule

STEPS, MICRO_STEPS = 10, 4


def batches(delay_s: float) -> Any:
    """Yield batches from the host, each after a delay."""
    while True:
        with record_function("data_loading"):
            time.sleep(delay_s)
            inputs = torch.randn(2048, 2048).pin_memory()
        yield inputs


def record(folder: Path, name: str) -> None:
    """Train ten steps under the profiler and write the trace."""
    torch.manual_seed(1)
    model = nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(4))).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    source = batches(0.03 if name == "slow_loader" else 0.0)
    path = folder / f"{name}.json"
    plan = schedule(wait=2, warmup=3, active=STEPS, repeat=1)
    kinds = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(
        activities=kinds, schedule=plan, on_trace_ready=lambda p: p.export_chrome_trace(str(path))
    ) as profiler:
        for _ in range(5 + STEPS):
            inputs = next(source).to("cuda", non_blocking=True)
            optimizer.zero_grad(set_to_none=True)
            for part in inputs.chunk(MICRO_STEPS):
                loss = model(part).square().mean() / MICRO_STEPS
                loss.backward()
                if name == "item_each_micro_step":
                    loss.item()
            optimizer.step()
            profiler.step()
    torch.cuda.synchronize()
    with gzip.open(folder / f"{name}.json.gz", "wb", compresslevel=9) as packed:
        packed.write(path.read_bytes())
    path.unlink()


def main() -> None:
    """Record the traces named."""
    parser = argparse.ArgumentParser(prog="traces.py")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--with", dest="names", nargs="+", required=True)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.names:
        record(options.folder, name)


if __name__ == "__main__":
    main()
