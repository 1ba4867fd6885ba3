"""Megatron's timers of all ranks name who is slow where a log shows neither an onset nor many steps."""

import pytest

STEP = " iteration {n:8}/   20000 | elapsed time per iteration (ms): {ms} | lm loss: 2.1E+00 |\n"


def block(slow: int | None, *, factor: float = 2.0, head: int = 16) -> str:
    text = "times across ranks (ms):\n"
    for name, usual in (("forward-compute", 612.0), ("backward-compute", 1301.0)):
        text += f"  {name}:\n"
        for rank in range(16):
            times = factor if rank == slow else 1.6 if rank >= head else 1.0
            text += f"     rank {rank:2d}: {usual * times + rank % 3:.2f}\n"
    for rank in range(head):
        text += (
            f"  forward-send:\n     rank {rank:2d}: 1.20\n"
            if rank == 0
            else f"     rank {rank:2d}: 1.20\n"
        )
    return text


def log(*blocks: str) -> str:
    steps = (STEP.format(n=400 + 100 * i, ms=3977.2 + i) for i in range(len(blocks)))
    return "hosts in rank order: xe9-03 xe9-04 xe9-07 xe9-08 (4 GPUs each)\n" + "".join(
        step + one for step, one in zip(steps, blocks, strict=True)
    )


def test_a_rank_far_behind_its_peers_in_every_block_is_slow(diagnose):
    found = diagnose(log(block(10), block(10)))
    assert found.failure_type == "fail_slow_unexplained"
    assert (found.first_fault.rank, found.first_fault.node) == (10, "xe9-07")
    assert "orward-compute takes 1225 ms on rank 10" in found.summary


@pytest.mark.parametrize(
    "blocks",
    [
        (block(None), block(None)),
        (block(10, factor=1.2), block(10, factor=1.2)),
        (block(10), block(3)),
        (block(10), block(None)),
        # The last stage has the head of the model to compute, and sends nothing on.
        (block(None, head=15), block(None, head=15)),
    ],
)
def test_nobody_is_slow_who_is_not_far_behind_all_peers_in_every_block(diagnose, blocks):
    assert diagnose(log(*blocks)).failure_type != "fail_slow_unexplained"
