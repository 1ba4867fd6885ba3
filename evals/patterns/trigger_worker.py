"""One rank of a real training job over gloo that is only watched; run by `trigger_jobs`.

Arguments: folder, rank, world size, guilty rank, fault (slow or stall). The loop calls nothing of rerail:
iterations are learned, the guilty rank slows down (or stops for some seconds), the rest follows.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

HEALTHY, SLOW, STALL_S = 75, 60, 9.0


def load_from_a_tired_disk(seconds: float) -> None:
    """Be what is slow on one rank."""
    if seconds:
        time.sleep(seconds)


def main(folder: Path, rank: int, world: int, guilty: int, fault: str) -> None:
    """Train; the guilty rank turns slow, or stalls once, behind the healthy iterations."""
    import torch
    import torch.distributed as dist
    from torch.utils.data import DataLoader, Dataset

    from rerail.tools.profiling.calls import watch

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder / 'meeting'}", rank=rank, world_size=world
    )
    pause = 0.0

    class Samples(Dataset):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return 1 << 20

        def __getitem__(self, index: int) -> torch.Tensor:
            if index % 4 == 0:
                load_from_a_tired_disk(pause)
            return torch.full((128,), float(index % 7))

    model = torch.nn.Linear(128, 128)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    watcher = watch(folder / "profiles", job=fault)
    batches = iter(DataLoader(Samples(), batch_size=4))
    for step in range(HEALTHY + (SLOW if fault == "slow" else 5)):
        bad = rank == guilty and step >= HEALTHY
        pause = 0.0
        if bad and fault == "slow":
            pause = 0.06
        elif bad and step == HEALTHY:
            pause = STALL_S
        for _ in range(2):
            batch = next(batches)
            optimizer.zero_grad()
            model(batch).square().mean().backward()
        time.sleep(0.02)
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
    watcher.close()
    dist.barrier()
    # gloo's threads may abort a process that tears its group down while a peer still sends.
    os._exit(0)


if __name__ == "__main__":
    given = [int(number) for number in sys.argv[2:5]]
    main(Path(sys.argv[1]), given[0], given[1], given[2], sys.argv[5])
