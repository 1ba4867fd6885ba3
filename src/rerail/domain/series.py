"""Series over training steps: what one job or one rank reported, as numpy arrays with units.

The records know nothing of how they were read and nothing of faults; detectors judge them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


def _frozen_copy(values: ArrayLike, dtype: type, name: str, owner: str) -> NDArray[np.generic]:
    array: NDArray[np.generic] = np.array(values, dtype=dtype)
    if array.ndim != 1:
        raise ValueError(f"{owner}: {name} must have one dimension, not {array.ndim}")
    array.flags.writeable = False
    return array


_NO_COLUMNS = (
    "name", "rank", "steps_told", "reported", "left_out", "value_name", "is_training", "unit_s", "remarks"
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class StepSeries:
    """Step times of one job or one rank, with whatever else each step reported.

    All arrays have the same length. NaN means that a value was not reported. `step` is int64 and
    may fall where a job restarted from an older checkpoint; rows are in the order of time.
    Units: `step_time_s` seconds per step, `time` seconds since the epoch at the end of the step,
    `throughput` any measure of work per second,
    `reported` says by the name of a column which of its values were reported, where the source knows;
    `left_out` which rows do not name the column at all, as lines of text that print a value now and then;
    `steps_told` is false where the source does not say its steps and `step` counts its entries;
    `value` a number of which `value_name`, the word beside it, does not say what it is;
    `is_training` is false where no word says that the counter counts steps of training;
    `unit_s` how many seconds one of `step_time_s` is: 1, or NaN where the source tells a rate alone, of which the
    work of a step is not known; `remarks` what the source could not read; `epoch` is that of each step;
    `tokens` any measure of work per step, `seq_len_sq` the sum of squared sequence lengths; `may_explain` a measure of
    work that may explain slow steps, and says nothing of any others.
    """

    name: str
    step: IntArray
    step_time_s: FloatArray
    rank: int | None = None
    loss: FloatArray | None = None
    grad_norm: FloatArray | None = None
    loss_scale: FloatArray | None = None
    tokens: FloatArray | None = None
    may_explain: FloatArray | None = None
    seq_len_sq: FloatArray | None = None
    time: FloatArray | None = None
    learning_rate: FloatArray | None = None
    throughput: FloatArray | None = None
    steps_told: bool = True
    reported: Mapping[str, BoolArray] | None = None
    left_out: Mapping[str, BoolArray] | None = None
    value: FloatArray | None = None
    value_name: str = ""
    epoch: FloatArray | None = None
    is_training: bool = True
    unit_s: float = 1.0
    remarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name in _NO_COLUMNS or value is None:
                continue
            dtype = np.int64 if item.name == "step" else np.float64
            array = _frozen_copy(value, dtype, item.name, self.name)
            if item.name != "step" and len(array) != len(self.step):
                raise ValueError(
                    f"{self.name}: {item.name} has {len(array)} values for {len(self.step)} steps"
                )
            object.__setattr__(self, item.name, array)

    def __len__(self) -> int:
        return len(self.step)


@dataclass(frozen=True, eq=False)
class MetricSeries:
    """One number per step, for example an evaluation score; NaN means not reported."""

    name: str
    step: IntArray
    value: FloatArray
    rank: int | None = None
    time: FloatArray | None = None

    def __post_init__(self) -> None:
        for key, dtype in (("step", np.int64), ("value", np.float64), ("time", np.float64)):
            raw = getattr(self, key)
            if raw is None:
                continue
            array = _frozen_copy(raw, dtype, key, self.name)
            if key != "step" and len(array) != len(self.step):
                raise ValueError(
                    f"{self.name}: {key} has {len(array)} values for {len(self.step)} steps"
                )
            object.__setattr__(self, key, array)

    def __len__(self) -> int:
        return len(self.step)
