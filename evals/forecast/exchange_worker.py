"""One rank of a job that exchanges with both neighbours in one batch, as interleaved schedules do; profiled.

Arguments: folder, rank, world size, and 1 or 0 for recording shapes (and with them partners). Each of
four rounds works, sends to both neighbours and receives from both by `batch_isend_irecv`, and works again.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

STEPS, ROUNDS = 12, 4
WORK_S = 0.01


def main(folder: Path, rank: int, world: int, shapes: bool) -> None:
    """Run and leave a Kineto trace, rank*.json."""
    import torch
    import torch.distributed as dist
    from torch.profiler import ProfilerActivity, profile, schedule

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder / 'meeting'}", rank=rank, world_size=world
    )
    after, before = (rank + 1) % world, (rank - 1) % world
    out, back, activation, gradient = (torch.zeros(4096) for _ in range(4))
    with profile(
        activities=[ProfilerActivity.CPU], record_shapes=shapes,
        schedule=schedule(wait=1, warmup=1, active=STEPS, repeat=1),
        on_trace_ready=lambda p: p.export_chrome_trace(str(folder / f"rank{rank}.json")),
    ) as profiler:  # fmt: skip
        for _ in range(STEPS + 2):
            for _ in range(ROUNDS):
                time.sleep(WORK_S * (2.0 if rank == 1 else 1.0))
                requests = [
                    dist.P2POp(dist.isend, out, after), dist.P2POp(dist.irecv, activation, before),
                    dist.P2POp(dist.isend, back, before), dist.P2POp(dist.irecv, gradient, after),
                ]  # fmt: skip
                for request in dist.batch_isend_irecv(requests):
                    request.wait()
                time.sleep(WORK_S)
            dist.all_reduce(torch.ones(64))
            profiler.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "1")
