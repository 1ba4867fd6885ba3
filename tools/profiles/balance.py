"""Time that the split of the model or the data costs: a longer stage, steps of uneven length."""

from __future__ import annotations

import numpy as np

from rerail.domain.series import FloatArray, IntArray
from rerail.tools.durations import seconds
from rerail.tools.profiles.function_table import DEVICE_COMPUTE
from rerail.tools.profiles.matrix import ProfileMatrix
from rerail.tools.profiles.signs import Sign

_STAGE_RATIO = 1.12
_STAGE_SHARE = 0.03
_UNSTEADY = 0.08
_UNSTEADY_SHARE = 0.03
_LEAST_STEPS = 4


def balance_signs(matrix: ProfileMatrix) -> list[Sign]:
    """Return the signs of uneven work; nobody's device is at fault in them."""
    compute = matrix.of_class(*DEVICE_COMPUTE)
    if matrix.by_step_s is None or not len(compute) or len(matrix.ranks) < 2:
        return []
    return _long_stage(matrix, compute) + _unsteady(matrix, compute)


def _long_stage(matrix: ProfileMatrix, compute: IntArray) -> list[Sign]:
    """Return the pipeline stage that computes longer than the others."""
    pipeline = any(
        table.kind == "pp" or "sendrecv" in table.function for table in matrix.collectives
    )
    if len(matrix.role_names) < 2 or not pipeline or not matrix.device:
        return []
    assert matrix.by_step_s is not None
    typical = np.median(matrix.by_step_s[compute], axis=1)
    of_role = np.stack(
        [np.median(typical[:, matrix.role == r], axis=1) for r in range(len(matrix.role_names))],
        axis=1,
    )
    total = of_role.sum(axis=0)
    top = int(total.argmax())
    rest = np.delete(np.arange(len(total)), top)
    others = float(np.median(total[rest]))
    # A stage is longer than all others; with several kinds of hosts there is no single longest.
    second = float(total[rest].max())
    extra = float(total[top] - others)
    if total[top] < _STAGE_RATIO * second or extra < _STAGE_SHARE * matrix.step_time_s:
        return []
    who = np.flatnonzero(matrix.role == top)
    function = int((of_role[:, top] - np.median(of_role[:, rest], axis=1)).argmax())
    now = matrix.seconds(compute)[:, who]
    name = matrix.role_names[top]
    return [
        Sign(
            "stage", matrix.functions[int(compute[function])], matrix.work[int(compute[function])],
            who, "beta", float(total[top] / others), np.maximum(now - others, 0),
            f"every worker of {name} computes {seconds(float(total[top]))} a step, the other stages "
            f"{seconds(others)}, and they wait for it",
        )
    ]  # fmt: skip


def _unsteady(matrix: ProfileMatrix, compute: IntArray) -> list[Sign]:
    """Return the function whose time changes from step to step on all workers."""
    # On a CPU whatever else runs on the host makes times uneven.
    if matrix.steps < _LEAST_STEPS or not matrix.device:
        return []
    assert matrix.by_step_s is not None
    total = matrix.seconds(compute)
    change = _change(total)
    unsteady: FloatArray = np.array(
        [np.median(change[matrix.role == r]) for r in range(len(matrix.role_names))]
    )
    roles = np.flatnonzero(unsteady >= _UNSTEADY)
    who = np.flatnonzero(np.isin(matrix.role, roles))
    if len(who) < 2:
        return []
    lost = []
    for role in roles:
        mine = total[:, matrix.role == role]
        # What all do alike in a step (a longer batch for everybody) makes nobody wait.
        lost.append(float((mine.max(axis=1) - mine.mean(axis=1)).mean()))
    if max(lost) < _UNSTEADY_SHARE * matrix.step_time_s:
        return []
    values = matrix.by_step_s[compute][:, :, who]
    moved = np.abs(values - np.median(values, axis=1, keepdims=True)).sum(axis=(1, 2))
    usual = np.maximum(np.median(values, axis=1).sum(axis=1), 1e-12)
    big = moved >= 0.25 * moved.max()
    function = int(np.where(big, moved / usual, -1).argmax())
    spread = float(np.median(_change(values[function])))
    extra = np.maximum(total[:, who] - total[:, who].mean(axis=1, keepdims=True), 0)
    return [
        Sign(
            "unsteady", matrix.functions[int(compute[function])], matrix.work[int(compute[function])],
            who, "sigma", 1 + spread, extra,
            f"its time changes by {spread:.0%} from step to step on the typical worker, and on different "
            f"workers in different steps; the step waits for whoever has the longest",
        )
    ]  # fmt: skip


def _change(values: FloatArray) -> FloatArray:
    """Return the spread over steps relative to the median of each column of (S, n)."""
    middle = np.median(values, axis=0)
    out: FloatArray = values.std(axis=0) / np.maximum(middle, 1e-12)
    return np.where(middle > 0, out, 0.0)
