"""The order of forward and backward passes on a pipeline stage: 1F1B and its interleaved form.

Orders are those of Narayanan et al., Efficient Large-Scale Language Model Training on GPU
Clusters (SC'21), sections 2.2.1 and 2.2.2.
"""

from __future__ import annotations

from typing import NamedTuple


class Pass(NamedTuple):
    """One pass of a micro-batch through a model chunk of a stage."""

    forward: bool
    chunk: int
    micro_batch: int


def stage_order(stage: int, stages: int, micro_batches: int, chunks: int = 1) -> list[Pass]:
    """Return the passes of a stage in the order in which it runs them.

    Raises:
        ValueError: the interleaved schedule needs micro-batches in multiples of the stages.
    """
    if chunks > 1 and micro_batches % stages:
        raise ValueError(f"{micro_batches} micro-batches do not divide into {stages} stages")
    total = micro_batches * chunks
    if chunks == 1:
        warm = min(stages - stage - 1, total)
    else:
        warm = min((stages - stage - 1) * 2 + (chunks - 1) * stages, total)
    order = [_pass(True, i, stages, chunks) for i in range(warm)]
    for i in range(total - warm):
        order.append(_pass(True, warm + i, stages, chunks))
        order.append(_pass(False, i, stages, chunks))
    order += [_pass(False, i, stages, chunks) for i in range(total - warm, total)]
    return order


def _pass(forward: bool, number: int, stages: int, chunks: int) -> Pass:
    if chunks == 1:
        return Pass(forward, 0, number)
    block, place = divmod(number, stages * chunks)
    chunk, within = divmod(place, stages)
    return Pass(forward, chunk if forward else chunks - 1 - chunk, block * stages + within)
