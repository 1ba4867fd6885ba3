"""Workers whose own work takes longer than that of their like: compute, copies, host, data.

Totals of a class are compared first, because a sum is steadier than its parts; then single
functions. What a worker waits for others is not its own work and is judged in `transfers`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rerail.domain.series import FloatArray, IntArray
from rerail.tools.localize.compare import compare
from rerail.tools.profiles.channels import BETA, MU, Float32
from rerail.tools.profiles.distance import differences
from rerail.tools.profiles.function_table import DEVICE_COMPUTE
from rerail.tools.profiles.host_noise import core_wait, longer, not_beside, undisturbed
from rerail.tools.profiles.matrix import ProfileMatrix
from rerail.tools.profiles.signs import Sign

_PERSISTS = 0.7
_ALIKE = 0.6
_EXPECTED_LOADER = 0.01
_ALL_LOADERS = 0.08
_LEAST_PAUSE = 0.02
_LEAST_STEPS = 3
_APART_SHARE = 0.05
_HOST = ("host", "idle", "others")
WHOLE = {True: "all compute kernels", False: "all that the process does"}


@dataclass(frozen=True)
class Gate:
    """How much longer counts: the least ratio - 1 and the least share of the step."""

    effect: float
    share: float


_COMPUTE, _PROCESS = Gate(0.02, 0.004), Gate(0.10, 0.02)
_MEMORY, _HOST_GATE = Gate(0.15, 0.002), Gate(0.5, 0.02)


@dataclass(frozen=True, eq=False)
class OwnWork:
    """The signs, the roles without a reference, those of one worker, and who is lost in the noise."""

    signs: list[Sign]
    split: tuple[str, ...]
    few: tuple[str, ...]
    blurred: tuple[int, ...] = ()


def own_work_signs(matrix: ProfileMatrix) -> OwnWork:
    """Return the signs in the workers' own work."""
    if matrix.by_step_s is None:
        return OwnWork([], (), ())
    loader, pauses = _loader(matrix), _pauses(matrix)
    if not matrix.device:
        known = {int(w) for sign in loader + pauses for w in sign.workers}
        signs, split, few, blurred = _process(matrix, known)
        return OwnWork(signs + loader + pauses, split, few, blurred)
    compute = matrix.of_class(*DEVICE_COMPUTE)
    hot, split, few = _slow(matrix, matrix.seconds(compute), _COMPUTE)
    signs = _by_function(matrix, compute, hot, "function")
    signs += _single(matrix, compute, hot)
    signs += _copies(matrix, matrix.of_class("memory"))
    for classes, kind in ((_HOST, "host"), (("checkpoint",), "checkpoint")):
        functions = matrix.of_class(*classes)
        hot, _, _ = _slow(matrix, matrix.seconds(functions), _HOST_GATE)
        signs += _by_function(matrix, functions, hot, kind)
    return OwnWork(signs + loader + pauses, split, few)


def _process(
    matrix: ProfileMatrix, known: set[int]
) -> tuple[list[Sign], tuple[str, ...], tuple[str, ...], tuple[int, ...]]:
    """Judge processes without a device: all that is not a collective is their own work.

    On a host that they share they hold each other up, so their waits for a core are taken away, and who
    is slow must be so in nearly all steps.
    """
    own = undisturbed(matrix)
    seen, split, few = _slow(matrix, own, _PROCESS)
    hot = longer(own, seen, matrix.role)
    typical = np.median(own, axis=0)
    usual = np.array([np.median(typical[matrix.role == matrix.role[w]]) for w in hot.tolist()])
    hot = not_beside(matrix, hot, typical[hot] - usual)
    hot = np.array([w for w in hot.tolist() if w not in known], dtype=np.int64)
    mine = np.array(
        [i for i, work in enumerate(matrix.work) if work not in ("collective", "waiting")],
        dtype=np.int64,
    )
    signs = []
    known |= set(hot.tolist())
    for sign in _by_function(matrix, mine, hot, "process") + _apart(matrix, mine, known):
        kind = {"checkpoint": "checkpoint", "loader": "loader"}.get(sign.work, "process")
        signs.append(replace(sign, kind=kind))
    clear = known | {int(w) for sign in signs for w in sign.workers}
    return signs, split, few, tuple(w for w in seen.tolist() if w not in clear)


def _apart(matrix: ProfileMatrix, functions: IntArray, known: set[int]) -> list[Sign]:
    """Return functions that one process alone spends long in, in every step.

    On a busy host the sum of a process is too noisy to show it. The least of its steps must be twice
    the most that any other process ever needed.
    """
    if matrix.steps < _LEAST_STEPS or len(matrix.ranks) < _LEAST_STEPS:
        return []
    assert matrix.by_step_s is not None
    out = []
    wait = core_wait(matrix)
    whole = np.median(undisturbed(matrix), axis=0)
    beyond = whole - np.median(whole)
    for f in functions.tolist():
        values = matrix.by_step_s[f].astype(np.float64)
        top = int(values.min(axis=0).argmax())
        values[:, top] = np.maximum(values[:, top] - wait[:, top], 0.0)
        others = np.delete(values, top, axis=1)
        same = np.delete(matrix.role, top) == matrix.role[top]
        extra = float(np.median(values[:, top]) - np.median(others))
        if top in known or same.sum() < 2 or matrix.work[f] in ("idle", "others"):
            continue
        if values[:, top].min() <= 2 * others.max() or extra < _APART_SHARE * matrix.step_time_s:
            continue
        # Without the waits for a core the whole must be longer as well, not this part of it alone.
        if matrix.cpu_wait_s is not None and beyond[top] < 0.5 * extra:
            continue
        usual = float(np.median(others))
        out.append(
            Sign(
                "process", matrix.functions[f], matrix.work[f], np.array([top]), "beta",
                float(min(np.median(values[:, top]) / max(usual, 1e-9), 1e3)),
                np.maximum(values[:, [top]] - usual, 0),
                f"{_ms(np.median(values[:, top]))} a step, at most {_ms(others.max())} on the others",
            )
        )  # fmt: skip
    return out


def _slow(
    matrix: ProfileMatrix, total: FloatArray, gate: Gate
) -> tuple[IntArray, tuple[str, ...], tuple[str, ...]]:
    """Return the workers whose total is persistently above their role's, and roles without one."""
    if not total.any():
        return np.zeros(0, dtype=np.int64), (), ()
    typical = np.median(total, axis=0)
    seen = compare(typical, matrix.role, gate.effect, _error_of_steps(total))
    split = tuple(matrix.role_names[r] for r in seen.split)
    few = tuple(
        name for r, name in enumerate(matrix.role_names) if int((matrix.role == r).sum()) == 1
    )
    extra = typical - seen.reference
    hot = seen.slow[extra[seen.slow] >= gate.share * matrix.step_time_s]
    above = total[:, hot] > seen.reference[hot] * (1 + 0.5 * gate.effect)
    return hot[above.mean(axis=0) >= _PERSISTS], split, few


def _error_of_steps(total: FloatArray) -> float | None:
    """Return the relative error of a worker's median over steps, or None for fewer than three."""
    if len(total) < _LEAST_STEPS:
        return None
    middle = np.median(total, axis=0)
    busy = middle > 0
    if not busy.any():
        return None
    width = 1.4826 * np.median(np.abs(total - middle), axis=0)[busy] / middle[busy]
    return float(np.median(width)) / float(np.sqrt(len(total)))


def _reference(matrix: ProfileMatrix, functions: IntArray) -> FloatArray:
    """Return the role median of each function, (functions, W), in seconds per step."""
    assert matrix.by_step_s is not None
    typical = np.median(matrix.by_step_s[functions], axis=1)
    out = np.empty_like(typical, dtype=np.float64)
    for role in np.unique(matrix.role):
        mine = matrix.role == role
        ordered = np.sort(typical[:, mine], axis=1)
        # The lower median: of two workers the faster one is the reference.
        out[:, mine] = ordered[:, (ordered.shape[1] - 1) // 2][:, None]
    return out


def _by_function(
    matrix: ProfileMatrix, functions: IntArray, hot: IntArray, kind: str
) -> list[Sign]:
    """Turn slow workers into signs: all compute alike is the device, else the function it is."""
    if not len(hot):
        return []
    assert matrix.by_step_s is not None
    reference = _reference(matrix, functions)
    typical = np.median(matrix.by_step_s[functions], axis=1)
    groups: dict[tuple[str, int], list[int]] = {}
    for w in hot.tolist():
        extra = typical[:, w] - reference[:, w]
        top = int(extra.argmax())
        if kind in ("function", "process") and alike(typical[:, w], reference[:, w]):
            groups.setdefault(("device" if kind == "function" else kind, -1), []).append(w)
        else:
            groups.setdefault((kind, top), []).append(w)
    out = []
    for (found, top), workers in groups.items():
        who = np.array(workers, dtype=np.int64)
        mine = functions if top < 0 else functions[[top]]
        ref = reference.sum(axis=0)[who] if top < 0 else reference[top, who]
        now = matrix.seconds(mine)[:, who]
        ratio = float(np.median(np.median(now, axis=0) / np.maximum(ref, 1e-9)))
        name = WHOLE[matrix.device] if top < 0 else matrix.functions[int(functions[top])]
        out.append(
            Sign(
                found, name, "compute" if top < 0 else matrix.work[int(functions[top])], who, "beta",
                min(ratio, 1e3), np.maximum(now - ref, 0),
                f"{_ms(np.median(now))} a step, {_ms(np.median(ref))} on the workers with the same work",
            )
        )  # fmt: skip
    return out


def alike(own: FloatArray | Float32, reference: FloatArray) -> bool:
    """Tell whether most of a worker's compute is slower by about the same factor."""
    ratio = own.sum() / max(reference.sum(), 1e-12)
    busy = reference >= 1e-3 * reference.sum()
    if busy.sum() < 2:
        return True
    slower = own[busy] >= reference[busy] * (1 + 0.4 * (ratio - 1))
    return bool(reference[busy][slower].sum() >= _ALIKE * reference.sum())


def _single(matrix: ProfileMatrix, compute: IntArray, hot: IntArray) -> list[Sign]:
    """Return single functions that are slower on workers whose total is not."""
    if not len(compute) or matrix.steps < _LEAST_STEPS:
        return []
    assert matrix.by_step_s is not None
    noise = _noise(matrix, compute)
    found = differences(matrix.pattern[compute][:, : BETA + 1], matrix.role, noise=noise)
    reference = _reference(matrix, compute)
    least = 0.005 if matrix.device else 0.03
    groups: dict[int, list[int]] = {}
    for function, worker, value, before in zip(
        found.function.tolist(), found.worker.tolist(), found.value, found.reference, strict=True
    ):
        if worker in hot or value - before < least or value < 1.1 * before:
            continue
        now = matrix.by_step_s[compute[function], :, worker]
        if (now > 1.05 * reference[function, worker]).mean() >= _PERSISTS:
            groups.setdefault(function, []).append(worker)
    out = []
    for function, workers in groups.items():
        who = np.array(workers, dtype=np.int64)
        now = matrix.by_step_s[compute[function]][:, who].astype(np.float64)
        ref = reference[function, who]
        out.append(
            Sign(
                "function", matrix.functions[int(compute[function])],
                matrix.work[int(compute[function])], who, "beta",
                float(np.median(np.median(now, axis=0) / np.maximum(ref, 1e-9))),
                np.maximum(now - ref, 0),
                f"{_ms(np.median(now))} a step, {_ms(np.median(ref))} on the workers with the same work",
            )
        )  # fmt: skip
    return out


def _noise(matrix: ProfileMatrix, functions: IntArray) -> FloatArray:
    """Return the relative error of beta that the steps of a worker show, (functions, roles)."""
    assert matrix.by_step_s is not None
    values = matrix.by_step_s[functions]
    middle = np.median(values, axis=1)
    error = 1.4826 * np.median(np.abs(values - middle[:, None]), axis=1) / np.sqrt(matrix.steps)
    relative = error / np.maximum(middle, 1e-12)
    relative[middle <= 0] = 0
    return np.stack(
        [np.median(relative[:, matrix.role == r], axis=1) for r in range(len(matrix.role_names))],
        axis=1,
    ).astype(np.float64)


def _copies(matrix: ProfileMatrix, memory: IntArray) -> list[Sign]:
    """Return copies that move fewer bytes a second than the same copies elsewhere."""
    if not len(memory):
        return []
    hot, _, _ = _slow(matrix, matrix.seconds(memory), _MEMORY)
    signs = _by_function(matrix, memory, hot, "memory")
    out = []
    for sign in signs:
        at = matrix.functions.index(sign.function)
        speed = matrix.pattern[at, MU].astype(np.float64)
        role = matrix.role == matrix.role[sign.workers[0]]
        usual = float(np.nanmedian(speed[role])) if np.isfinite(speed[role]).any() else float("nan")
        mine = float(np.nanmedian(speed[sign.workers])) if np.isfinite(usual) else float("nan")
        facts = frozenset({"slower_transfer"}) if mine < 0.9 * usual else frozenset({"more_copied"})
        said = sign.seen
        if np.isfinite(mine):
            unit = "of the peak" if matrix.counted[at] else "GB/s"
            scale = 1.0 if matrix.counted[at] else 1e9
            said += f"; {mine / scale:.3g} {unit}, {usual / scale:.3g} elsewhere"
        out.append(
            Sign(
                sign.kind, sign.function, sign.work, sign.workers,
                "mu" if "slower_transfer" in facts else "beta", sign.ratio, sign.extra_s, said,
                facts=facts,
            )
        )  # fmt: skip
    return out


def _loader(matrix: ProfileMatrix) -> list[Sign]:
    """Return workers that wait for their data: more than a hundredth of the window."""
    functions = matrix.of_class("loader")
    if not len(functions):
        return []
    total = matrix.seconds(functions)
    share = total.sum(axis=0) / matrix.step_s.sum(axis=0)
    # What one fetch takes when nothing stalls; stalls strike other ranks in other steps.
    usual = float(np.median(total)) / matrix.step_time_s
    least = _EXPECTED_LOADER if matrix.device else 0.05
    if usual >= _ALL_LOADERS:
        if matrix.steps < _LEAST_STEPS:
            return []
        hot, reference = np.flatnonzero(share >= least), 0.0
    else:
        hot = np.flatnonzero((share >= usual + least) & (share >= 2 * usual))
        reference = usual * matrix.step_time_s
    if not matrix.device and usual < _ALL_LOADERS:
        # One fetch in which the host gave a process no core is no slow storage.
        hot = longer(np.maximum(total - core_wait(matrix), 0.0), hot, matrix.role)
    if not len(hot):
        return []
    top = functions[int(matrix.pattern[functions][:, BETA][:, hot].sum(axis=1).argmax())]
    return [
        Sign(
            "loader", matrix.functions[int(top)], "loader", hot, "beta",
            float(min(np.median(share[hot]) / max(usual if reference else least, 1e-6), 1e3)),
            np.maximum(total[:, hot] - reference, 0),
            f"{np.median(share[hot]):.1%} of the window goes into waiting for data, at most "
            f"{least:.0%} is usual",
        )
    ]  # fmt: skip


def _pauses(matrix: ProfileMatrix) -> list[Sign]:
    """Return garbage collections that stop different workers in different steps."""
    functions = matrix.of_class("collector")
    if not len(functions):
        return []
    total = matrix.seconds(functions)
    paused = total >= _LEAST_PAUSE * matrix.step_time_s
    who = np.flatnonzero(paused.any(axis=0))
    if not len(who):
        return []
    together = paused.mean(axis=1)
    if (together[paused.any(axis=1)] >= 0.8).all():
        return []
    lost = float(total.max(axis=1).mean()) / matrix.step_time_s
    if lost < 0.005:
        return []
    top = functions[int(matrix.pattern[functions][:, BETA].sum(axis=1).argmax())]
    steps = int(paused.any(axis=1).sum())
    return [
        Sign(
            "collector", matrix.functions[int(top)], "collector", who, "sigma",
            1 + lost, total[:, who],
            f"{len(who)} workers stopped for {_ms(np.median(total[paused]))} in {steps} of "
            f"{matrix.steps} steps, not all in the same one, and each time the others waited",
        )
    ]  # fmt: skip


def _ms(value: float | np.floating) -> str:
    from rerail.tools.durations import seconds

    return seconds(float(value))
