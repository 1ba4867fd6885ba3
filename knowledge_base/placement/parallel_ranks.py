"""Ranks of the job from the place of a process in a grid of tensor and pipeline ranks, or in a group of equal size.

Megatron numbers tensor ranks first and pipeline ranks last, and only the first data-parallel replica prints its place:
tensor rank t of pipeline stage p is rank `p * world / stages + t`
(https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/parallel_state.py, order tp-cp-ep-dp-pp).
Processes that are named by their placement group, one for each node, and their number within it have the rank
`group * processes of a node + number`
(https://github.com/volcengine/verl/blob/main/verl/single_controller/ray/base.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rerail.knowledge_base.statements import Statement


def with_ranks(statements: Sequence[Statement]) -> list[Statement]:
    """Give statements of a place in a grid or group the rank of the job, where one size of it is told."""
    sizes = {
        (one.number("grid_world"), one.number("stages"))
        for one in statements
        if "grid" in one.form.tells
    }
    each = {one.number("per_node") for one in statements if "job" in one.form.tells} - {None}
    found = []
    for one in statements:
        if not one.form.tells & {"in_grid", "in_group"}:
            found.append(one)
            continue
        rank = _in_group(one, each) if "in_group" in one.form.tells else _in_grid(one, sizes)
        if rank is not None:
            found.append(replace(one, slots={**one.slots, "rank": str(rank)}))
    return found


def _in_group(one: Statement, each: set[int | None]) -> int | None:
    """Return the rank by placement group and number within it; of the first group the number is the rank."""
    group, number = one.number("group"), one.number("member")
    if not group or number is None:
        return number if group == 0 else None
    size = next(iter(each)) if len(each) == 1 else None
    return group * size + number if size and number < size else None


def _in_grid(one: Statement, sizes: set[tuple[int | None, int | None]]) -> int | None:
    world, stages = next(iter(sizes)) if len(sizes) == 1 else (None, None)
    tensor, stage = one.number("tensor_rank"), one.number("stage")
    if not world or not stages or tensor is None or stage is None or world % stages:
        return None
    each = world // stages
    return stage * each + tensor if tensor < each and stage < stages else None
