"""The time of one pipeline replica under the 1F1B schedule, exactly, from its stages' times.

Stage s first runs P - 1 - s forward passes, then forward and backward in turns, then the backward
passes left (Narayanan et al., SC'21, figure 4). A backward pass takes twice a forward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

FORWARD, BACKWARD = 0, 1


def _order(stage: int, stages: int, micro_batches: int) -> list[tuple[int, int]]:
    warm_up = min(stages - 1 - stage, micro_batches)
    order = [(FORWARD, i) for i in range(warm_up)]
    for i in range(micro_batches - warm_up):
        order += [(FORWARD, warm_up + i), (BACKWARD, i)]
    return order + [(BACKWARD, i) for i in range(micro_batches - warm_up, micro_batches)]


@lru_cache(maxsize=65_536)
def replica_time_s(stage_time_s: tuple[float, ...], micro_batches: int) -> float:
    """Return the time of one replica; `stage_time_s` [P] is forward plus backward of one micro-batch."""
    stages = len(stage_time_s)
    orders = [_order(stage, stages, micro_batches) for stage in range(stages)]
    done: list[dict[tuple[int, int], float]] = [{} for _ in range(stages)]
    clock = [0.0] * stages
    place = [0] * stages
    left = sum(len(order) for order in orders)
    while left:
        for stage in range(stages):
            while place[stage] < len(orders[stage]):
                kind, i = orders[stage][place[stage]]
                start = _ready(done, stage, stages, kind, i)
                if start is None:
                    break
                share = 1 / 3 if kind == FORWARD else 2 / 3
                clock[stage] = max(clock[stage], start) + share * stage_time_s[stage]
                done[stage][kind, i] = clock[stage]
                place[stage] += 1
                left -= 1
    return max(clock)


def _ready(
    done: Sequence[dict[tuple[int, int], float]], stage: int, stages: int, kind: int, i: int
) -> float | None:
    """Return when the input of a pass is there, or None while it is not known."""
    if kind == FORWARD:
        return 0.0 if stage == 0 else done[stage - 1].get((FORWARD, i))
    if stage == stages - 1:
        return done[stage].get((FORWARD, i))
    return done[stage + 1].get((BACKWARD, i))


def table_s(stage_time_s: tuple[float, ...], most: int) -> list[float]:
    """Return the replica's time for 1 to `most` micro-batches; rising."""
    return [replica_time_s(stage_time_s, m) for m in range(1, most + 1)]
