"""Data-parallel training over NCCL, as far as one GPU goes: one rank, or ranks that share it."""
# mypy: allow-untyped-calls

from __future__ import annotations

import argparse
import logging
import os
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record

log = logging.getLogger("nccl_fit")


@record
def main() -> None:
    """Join, train, leave."""
    parser = argparse.ArgumentParser(prog="nccl_fit.py")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--timeout", type=float, default=60)
    parser.add_argument("--library", type=Path)
    parser.add_argument("--kernel", help="kernel of the library that joins in from step 23 on")
    parser.add_argument("--average-on-host", action="store_true")
    parser.add_argument("--stay-in-group", action="store_true")
    options = parser.parse_args()
    rank = int(os.environ["RANK"])
    logging.basicConfig(
        stream=sys.stdout,
        level=logging.INFO,
        format=f"%(asctime)s [rank{rank}] %(levelname)s %(message)s",
    )
    torch.cuda.set_device(0)
    log.info("torch %s nccl %s", torch.__version__, torch.cuda.nccl.version())
    dist.init_process_group("nccl", timeout=timedelta(seconds=options.timeout))
    torch.manual_seed(1)
    model = nn.parallel.DistributedDataParallel(nn.Linear(512, 16).cuda(), device_ids=[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(1, options.steps + 1):
        inputs = torch.randn(256, 512, device="cuda")
        # The same kernels in every step: CUDA loads one when it is first used, and cannot do so
        # while another runs that never ends.
        labels = inputs[:, :16].argmax(1)
        if options.kernel and step == 23:
            from rerail.evals.faultlab.programs.rows import run_kernel

            run_kernel(options.library, options.kernel, inputs)
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().cpu() if options.average_on_host else loss.detach()
        dist.all_reduce(mean)
        if step % 5 == 0:
            log.info("step %d loss %.4f", step, mean.item() / dist.get_world_size())
    log.info("training complete: %d steps", options.steps)
    if not options.stay_in_group:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
