"""One rank of a small real training job over gloo with the collector; run by `gloo_jobs`.

Arguments: folder, rank, world size, guilty rank, iterations before each window, and the faults that
come one after the other: healthy, function, rank, loader, collector. The job trains a small network
on a data loader and averages gradients by hand; each fault has a window and a folder of its own.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from pathlib import Path

_WINDOW = 6


def normalise_tokens(seconds: float) -> None:
    """Be the function that is slow on one rank."""
    if seconds:
        time.sleep(seconds)


def main(folder: Path, rank: int, world: int, guilty: int, before: int, faults: list[str]) -> None:
    """Train through all faults, each on the guilty rank only."""
    import torch
    import torch.distributed as dist
    from torch.utils.data import DataLoader, Dataset

    from rerail.tools.profiling.window import WindowProfiler

    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder / 'meeting'}", rank=rank, world_size=world
    )
    mine = "healthy"

    class Samples(Dataset):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return 1 << 20

        def __getitem__(self, index: int) -> torch.Tensor:
            if mine == "loader":
                time.sleep(0.004)
            return torch.full((256,), float(index % 7))

    model = torch.nn.Sequential(
        *[layer for _ in range(3) for layer in (torch.nn.Linear(256, 256), torch.nn.ReLU())]
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batches = iter(DataLoader(Samples(), batch_size=16))
    gc.disable()
    for fault in faults:
        mine = fault if rank == guilty else "healthy"
        profiler = WindowProfiler(folder / fault, steps=_WINDOW, first=before, job=fault)
        for step in range(before + _WINDOW + 1):
            batch = next(batches)
            normalise_tokens(0.06 if mine == "function" else 0.0)
            for _ in range(48 if mine == "rank" else 4):
                optimizer.zero_grad()
                model(batch).square().mean().backward()
            if mine == "collector" and step % 2:
                waste = [[i] for i in range(300_000)]
                gc.collect()
                del waste
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
            optimizer.step()
            profiler.step()
        profiler.close()
        told = {"outside_share": profiler.outside_share, "window_cost_s": profiler.window_cost_s}
        (folder / fault / f"told{rank}.txt").write_text(json.dumps(told))
    dist.barrier()
    # gloo's threads may abort a process that tears its group down while a peer still sends.
    os._exit(0)


if __name__ == "__main__":
    given = [int(number) for number in sys.argv[2:6]]
    main(Path(sys.argv[1]), given[0], given[1], given[2], given[3], sys.argv[6:])
