"""Generates the merged log of a job of any size in which all ranks but one time out in a collective.

The shape is the one that a cap hides: a launcher's label in front of the rank's own, a few step lines,
then one watchdog line of every rank but the one that never came.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

PER_NODE = 8
LABELS = {
    "torchrun": "[default{local}]:[rank{rank}]: ",
    "rank": "[rank{rank}]: ",
    "srun": "{rank}: ",
}
"""How the launchers label a line."""


def timeout_log(
    ranks: int, missing: int, *, label: str = "torchrun", steps: int = 20, seed: int = 1
) -> Iterator[str]:
    """Yield the lines of the log, without line ends.

    Args:
        ranks: the world size.
        missing: the rank that prints steps and no time-out.
        label: which of `LABELS` stands in front of every line.
        steps: step lines that the last rank prints; every rank prints a line of its data loader.
        seed: of the order in which the ranks print.
    """
    order = random.Random(seed)
    front = LABELS[label]
    time = datetime(2026, 3, 4, 1, 0, 0, tzinfo=UTC)

    def line(rank: int, text: str) -> str:
        return front.format(rank=rank, local=rank % PER_NODE) + text

    everyone = list(range(ranks))
    order.shuffle(everyone)
    for rank in everyone:
        yield line(rank, f"{time:%Y-%m-%d %H:%M:%S}.000000 INFO dataloader: worker 0 is ready")
    for step in range(1, steps + 1):
        time += timedelta(seconds=2)
        yield line(
            ranks - 1,
            f" [{time:%Y-%m-%d %H:%M:%S}.000000] iteration {step:8d}/  500000 | consumed samples: {step * 1024:12d} |"
            f" elapsed time per iteration (ms): 2000.0 | learning rate: 1.500E-04 | global batch size: 1024 |"
            f" lm loss: 2.{step:06d}E+00 | loss scale: 1.0 | grad norm: 0.310 |"
            f" number of skipped iterations: 0 | number of nan iterations: 0 |",
        )
    given_up = time + timedelta(seconds=600)
    order.shuffle(everyone)
    for rank in everyone:
        if rank != missing:
            yield line(
                rank,
                f"[E{given_up:%m%d %H:%M:%S}.812345678 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught"
                f" collective operation timeout: WorkNCCL(SeqNum=90001, OpType=_ALLGATHER_BASE, NumelIn=2097152,"
                f" NumelOut=16777216, Timeout(ms)=600000) ran for 600012 milliseconds before timing out.",
            )
