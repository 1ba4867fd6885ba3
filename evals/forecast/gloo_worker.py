"""One rank of a real job over gloo whose steps are delayed at random; run by `real_job`, not by hand.

Arguments: folder, steps, seed. Each step computes twice, sleeps a random while before each of its
two collectives, and notes begin and end of steps and collectives on its own clock.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path


def main(folder: str, steps: int, seed: int) -> None:
    """Run the steps and write [begin, end, [[group, begin, end], ...]] per step as JSON."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    left, gradient = torch.randn(96, 96), torch.randn(1 << 12)
    delay = random.Random(1000 * seed + rank)
    spans = []
    dist.barrier()
    for _ in range(steps):
        begin = time.perf_counter()
        collectives = []
        for mean in (0.012, 0.018):
            left = torch.tanh(left @ left)
            # Rank 3 is slower on average; all are Gamma with a tail.
            time.sleep(delay.gammavariate(6.0, mean / 6.0) * (1.15 if rank == 3 else 1.0))
            at = time.perf_counter()
            dist.all_reduce(gradient)
            collectives.append(["world", at, time.perf_counter()])
        spans.append([begin, time.perf_counter(), collectives])
    (Path(folder) / f"spans{rank}.json").write_text(json.dumps(spans))
    dist.barrier()
    # gloo's threads may abort a process that tears its group down while a peer still sends.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
