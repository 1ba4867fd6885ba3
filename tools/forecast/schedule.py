"""The order of passes on a pipeline stage: 1F1B, its interleaved form, and zero-bubble.

1F1B and interleaved: Narayanan et al., Efficient Large-Scale Language Model Training on GPU
Clusters (SC'21), sections 2.2.1 and 2.2.2. Zero-bubble: Qi et al., Zero Bubble Pipeline Parallelism
(ICLR'24), schedule ZB-H1: the backward pass is split into the gradient of the input, which the
stage before waits for, and that of the weights, which fills the bubbles; no more memory than 1F1B.
"""

from __future__ import annotations

from typing import NamedTuple


class Pass(NamedTuple):
    """One pass of a micro-batch through a model chunk of a stage.

    `weights` marks the gradient of the weights where a schedule runs it apart.
    """

    forward: bool
    chunk: int
    micro_batch: int
    weights: bool = False


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


def zero_bubble_order(stage: int, stages: int, micro_batches: int) -> list[Pass]:
    """Return the passes of a stage under ZB-H1: that of 1F1B, with the weights' gradients apart.

    Stage s computes the gradients of the weights s micro-batches after those of the inputs, so that
    no stage holds more than P micro-batches, the memory of stage 0 under 1F1B.
    """
    order: list[Pass] = []
    done = 0
    for one in stage_order(stage, stages, micro_batches):
        order.append(one)
        if not one.forward and one.micro_batch >= stage:
            order.append(Pass(False, 0, done, weights=True))
            done += 1
    return order + [Pass(False, 0, i, weights=True) for i in range(done, micro_batches)]
