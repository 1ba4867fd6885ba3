"""The time of one 1F1B replica without noise, from what a micro-batch takes on each stage."""

from __future__ import annotations

from functools import lru_cache

from rerail.tools.forecast.engine import deterministic
from rerail.tools.forecast.program import Program, pipeline_program

_SHARE = {"forward": 1 / 3, "backward": 2 / 3}  # a backward pass takes twice a forward pass


@lru_cache(maxsize=256)
def _program(stages: int, micro_batches: int) -> Program:
    return pipeline_program(stages, micro_batches, transfer=False)


@lru_cache(maxsize=65_536)
def replica_time_s(stage_time_s: tuple[float, ...], micro_batches: int) -> float:
    """Return the time of one replica; `stage_time_s` [P] is forward plus backward of one micro-batch."""
    program = _program(len(stage_time_s), micro_batches)
    seconds = [_SHARE[node.duration] * stage_time_s[node.place] for node in program.nodes]
    return float(deterministic(program, seconds))


def table_s(stage_time_s: tuple[float, ...], most: int) -> list[float]:
    """Return the replica's time for 1 to `most` micro-batches; rising."""
    return [replica_time_s(stage_time_s, m) for m in range(1, most + 1)]
