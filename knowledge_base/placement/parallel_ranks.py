"""Ranks of the job from the place of a process in Megatron's grid of tensor and pipeline ranks.

Megatron numbers tensor ranks first and pipeline ranks last, and only the first data-parallel replica prints its place:
tensor rank t of pipeline stage p is rank `p * world / stages + t`
(https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/parallel_state.py, order tp-cp-ep-dp-pp).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rerail.knowledge_base.statements import Statement


def with_ranks(statements: Sequence[Statement]) -> list[Statement]:
    """Give statements of a place in the grid the rank of the job, where one size of the grid is told."""
    sizes = {
        (one.number("grid_world"), one.number("stages"))
        for one in statements
        if "grid" in one.form.tells
    }
    found = []
    for one in statements:
        if "in_grid" not in one.form.tells:
            found.append(one)
            continue
        rank = _rank(one, sizes)
        if rank is not None:
            found.append(replace(one, slots={**one.slots, "rank": str(rank)}))
    return found


def _rank(one: Statement, sizes: set[tuple[int | None, int | None]]) -> int | None:
    world, stages = next(iter(sizes)) if len(sizes) == 1 else (None, None)
    tensor, stage = one.number("tensor_rank"), one.number("stage")
    if not world or not stages or tensor is None or stage is None or world % stages:
        return None
    each = world // stages
    return stage * each + tensor if tensor < each and stage < stages else None
