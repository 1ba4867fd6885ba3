"""One rank of a small real job over gloo, profiled; run by `gloo_jobs`, not by hand.

Arguments: folder for the trace, steps, slow rank (-1: none), delay in seconds before each
collective of the slow rank.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

MOST_PROFILED = 100


def main(folder: str, steps: int, slow: int, delay_s: float) -> None:
    """Compute, wait if this is the slow rank, and reduce; write step times and a trace.

    Jobs of more than 100 steps are not profiled and write step times only.
    """
    import torch
    import torch.distributed as dist
    from torch.profiler import ProfilerActivity, profile, schedule

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    left, gradient = torch.randn(160, 160), torch.randn(1 << 14)
    times = []

    def step() -> None:
        nonlocal left
        begin = time.perf_counter()
        for _ in range(3):
            for _ in range(4):
                left = torch.tanh(left @ left)
            if rank == slow:
                time.sleep(delay_s)
            dist.all_reduce(gradient)
        times.append(time.perf_counter() - begin)

    out = Path(folder)
    if steps > MOST_PROFILED:
        for _ in range(steps + 2):
            step()
    else:
        plan = schedule(wait=1, warmup=1, active=steps, repeat=1)
        with profile(activities=[ProfilerActivity.CPU], schedule=plan) as profiler:
            for _ in range(steps + 2):
                step()
                profiler.step()
        profiler.export_chrome_trace(str(out / f"rank{rank}.json"))
    (out / f"steps{rank}.txt").write_text(json.dumps(times))
    dist.barrier()
    # gloo's threads may abort a process that tears its group down while a peer still sends.
    os._exit(0)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
