"""Which functions a page shows, and how long each takes on every rank beside what was expected."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from rerail.domain.series import FloatArray, IntArray
from rerail.tools.localize.findings import Finding
from rerail.tools.profiles.channels import BETA
from rerail.tools.profiles.expected import Expected
from rerail.tools.profiles.function_table import DEVICE_COMPUTE
from rerail.tools.profiles.matrix import ProfileMatrix
from rerail.tools.profiles.own_work import WHOLE

WAITING = ("collective", "waiting", "idle")
LEAST_PEERS = 3
_MOST_OWN, _MOST_WAITING = 28, 8
_LEAST_SHARE = 0.002
_SAMPLE = 2000
# A function that takes less is held against this share of the step, so that dust has no colour.
FLOOR = 0.04


@dataclass(frozen=True, eq=False)
class FunctionTimes:
    """One function: seconds per step of every rank, and the range that was expected of it.

    `seconds`, `low` and `high` are (W,); NaN in `low` and `high`: there is nothing to compare with.
    `share` is the typical rank's part of the step.
    """

    name: str
    work: str
    share: float
    seconds: FloatArray
    low: FloatArray
    high: FloatArray
    distance: FloatArray
    whole: bool = False

    @property
    def waiting(self) -> bool:
        """Tell whether the time is spent on others, so that a long one blames nobody."""
        return self.work in WAITING


def function_times(
    matrix: ProfileMatrix, findings: Iterable[Finding], expected: Expected | None
) -> tuple[list[FunctionTimes], int]:
    """Return the functions worth a row, those that wait last, and how many were left out.

    Expected is the range of the healthy windows where they were given, else the median of the role.
    """
    findings = list(findings)
    named = {one.function for one in findings}
    chosen, left_out = _choose(matrix, findings)
    rows = []
    whole = _whole(matrix)
    if whole is not None:
        name = WHOLE[matrix.device]
        rows.append(_times(matrix, name, "", whole, expected, whole=True))
    for f in chosen:
        values = _seconds(matrix, f)
        rows.append(_times(matrix, matrix.functions[f], matrix.work[f], values, expected))
    rows.sort(key=lambda one: (one.waiting, not one.whole, one.name not in named, -one.share))
    return rows, left_out


def _choose(matrix: ProfileMatrix, findings: list[Finding]) -> tuple[list[int], int]:
    """Return the functions with the largest share on the typical or on any sampled rank."""
    named = {one.function for one in findings}
    guilty = np.isin(matrix.ranks, [rank for one in findings for rank in one.workers[:64]])
    step = max(1, len(matrix.ranks) // _SAMPLE)
    seen = np.unique(
        np.concatenate([np.arange(0, len(matrix.ranks), step), np.flatnonzero(guilty)])
    )
    beta = np.nan_to_num(matrix.pattern[:, BETA][:, seen])
    score = np.median(beta, axis=1) + 0.5 * beta.max(axis=1, initial=0)
    for f, name in enumerate(matrix.functions):
        score[f] += 10.0 * (name in named)
    order = [f for f in np.argsort(-score, kind="stable").tolist() if score[f] >= _LEAST_SHARE]
    waiting = [f for f in order if matrix.work[f] in WAITING]
    own = [f for f in order if matrix.work[f] not in WAITING]
    chosen = own[:_MOST_OWN] + waiting[:_MOST_WAITING]
    return chosen, len(matrix.functions) - len(chosen)


def _seconds(matrix: ProfileMatrix, function: int) -> FloatArray:
    """Return the typical seconds per step of a function on each rank, (W,)."""
    if matrix.by_step_s is not None:
        typical: FloatArray = np.median(matrix.by_step_s[function], axis=0).astype(np.float64)
        return typical
    shares = np.nan_to_num(matrix.pattern[function, BETA].astype(np.float64))
    values: FloatArray = shares * matrix.step_s.mean(axis=0)
    return values


def _whole(matrix: ProfileMatrix) -> FloatArray | None:
    """Return the typical own seconds per step of each rank, all compute together."""
    if not matrix.device:
        return np.asarray(np.median(matrix.own_s, axis=0))
    compute: IntArray = matrix.of_class(*DEVICE_COMPUTE)
    if not len(compute):
        return None
    if matrix.by_step_s is not None:
        return np.asarray(np.median(matrix.seconds(compute), axis=0))
    shares = np.nan_to_num(matrix.pattern[compute, BETA]).sum(axis=0, dtype=np.float64)
    return np.asarray(shares * matrix.step_s.mean(axis=0))


def _times(
    matrix: ProfileMatrix,
    name: str,
    work: str,
    values: FloatArray,
    expected: Expected | None,
    *,
    whole: bool = False,
) -> FunctionTimes:
    low, high = np.full(len(values), np.nan), np.full(len(values), np.nan)
    for role, role_name in enumerate(matrix.role_names):
        mine = matrix.role == role
        box = _box(matrix, role_name, name, values[mine], expected, whole=whole)
        if box is not None:
            low[mine], high[mine] = box
        elif int(mine.sum()) >= LEAST_PEERS:
            low[mine] = high[mine] = np.median(values[mine])
    floor = FLOOR * matrix.step_time_s
    beyond = np.maximum(values - high, 0) - np.maximum(low - values, 0)
    distance = beyond / np.maximum(high, floor)
    share = float(np.median(values)) / max(matrix.step_time_s, 1e-12)
    return FunctionTimes(name, work, share, values, low, high, distance, whole)


def _box(
    matrix: ProfileMatrix,
    role: str,
    name: str,
    values: FloatArray,
    expected: Expected | None,
    *,
    whole: bool,
) -> tuple[float, float] | None:
    """Return the healthy range of a function; that of all compute is the sum of its functions'."""
    if expected is None:
        return None
    if not whole:
        box = expected.find(role, name)
        return None if box is None else (box.low_s, box.high_s)
    if not matrix.device:
        return None
    ran = [matrix.functions[f] for f in matrix.of_class(*DEVICE_COMPUTE).tolist()]
    boxes = [box for box in (expected.find(role, one) for one in ran) if box is not None]
    return (sum(b.low_s for b in boxes), sum(b.high_s for b in boxes)) if boxes else None
