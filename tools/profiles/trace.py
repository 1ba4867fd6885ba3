"""One worker's profile as columns, whatever file it came from."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rerail.domain.series import FloatArray, IntArray

Bytes = NDArray[np.uint8]
KERNEL, COPY, CPU_OP, RUNTIME, ANNOTATION, PYTHON, OTHER = range(7)


@dataclass(frozen=True, eq=False)
class Samples:
    """Hardware counters sampled during the window.

    `at_us` (n,) on the clock of the trace; `use` maps a resource (sm, dram, pcie, nvlink, nic,
    cpu) to its use (n,), 0..1 of the peak, NaN where it was not read.
    """

    at_us: FloatArray
    use: dict[str, FloatArray]


@dataclass(frozen=True, eq=False)
class Trace:
    """The complete events of one worker.

    `name` (n,) indexes `names`; `kind` (n,) is one of the constants of this module; times are in
    microseconds on the worker's own clock; `lane` (n,) is a thread or stream; `bytes` (n,) is NaN
    where unknown; `group` (n,) indexes `groups` or is -1. `epoch_us` added to a time is Unix time, NaN
    where the trace does not say.
    """

    source: str
    rank: int | None
    world: int
    host: str
    names: list[str]
    name: IntArray
    kind: Bytes
    start_us: FloatArray
    dur_us: FloatArray
    lane: IntArray
    bytes: FloatArray
    group: IntArray
    groups: list[Group]
    samples: Samples | None = None
    notes: list[str] = field(default_factory=list)
    epoch_us: float = float("nan")


@dataclass(frozen=True)
class Group:
    """A process group as the trace names it: its purpose (tp, dp, ...), size and members."""

    name: str
    kind: str
    size: int
    ranks: str
