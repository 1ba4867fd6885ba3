"""What healthy windows of a job look like: a box per function, with where it was learned.

With it, faults that hit all workers or the majority are seen: comparing workers with each other
cannot show them. Times are seconds per step of the role's typical worker, because shares of the
window shrink when another function grows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from rerail.domain.series import FloatArray, IntArray
from rerail.errors import EvidenceError
from rerail.tools.durations import seconds
from rerail.tools.profiles.channels import MU, Float32
from rerail.tools.profiles.function_table import DEVICE_COMPUTE
from rerail.tools.profiles.matrix import ProfileMatrix
from rerail.tools.profiles.own_work import alike
from rerail.tools.profiles.signs import Sign
from rerail.tools.profiles.transfers import group_transfers

VERSION = 1
_MARGIN = 1.10
_WHOLE_MARGIN = 1.05
_LEAST_SHARE = 0.004
_NEW_SHARE = 0.02
_OWN = (*DEVICE_COMPUTE, "memory", "host", "loader", "checkpoint", "collector", "idle")
_HINT = "rerail localize HEALTHY_FOLDER --learn FILE"


@dataclass(frozen=True)
class Box:
    """The range of one function over healthy workers and windows; None where it is not known."""

    role: str
    function: str
    work: str
    low_s: float
    high_s: float
    low_mu: float | None = None


@dataclass(frozen=True)
class Expected:
    """The boxes, and which windows they were learned from."""

    boxes: tuple[Box, ...]
    sources: tuple[str, ...]
    workers: int
    steps: int

    def find(self, role: str, function: str) -> Box | None:
        """Return the box of a function in a role; None where none was learned."""
        return next((b for b in self.boxes if b.role == role and b.function == function), None)


def learn(windows: Sequence[tuple[str, ProfileMatrix]]) -> Expected:
    """Learn boxes from healthy windows, each with the name of where it came from.

    Raises:
        EvidenceError: no window was given, or one has no times per step.
    """
    if not windows:
        raise EvidenceError("no healthy window was given", hint=_HINT)
    ranges: dict[tuple[str, str, str], list[tuple[float, float, float | None]]] = {}
    for name, matrix in windows:
        if matrix.by_step_s is None:
            raise EvidenceError(
                f"{name}: too large to learn from; give fewer workers", subject=name
            )
        for key, values, mu in _values(matrix):
            low_mu = float(np.nanquantile(mu, 0.02)) if np.isfinite(mu).any() else None
            ranges.setdefault(key, []).append(
                (float(np.quantile(values, 0.02)), float(np.quantile(values, 0.98)), low_mu)
            )
    boxes = [
        Box(
            *key, min(one[0] for one in seen), max(one[1] for one in seen),
            min((one[2] for one in seen if one[2] is not None), default=None),
        )
        for key, seen in sorted(ranges.items())
    ]  # fmt: skip
    return Expected(
        tuple(boxes), tuple(name for name, _ in windows),
        max(len(matrix.ranks) for _, matrix in windows), sum(m.steps for _, m in windows),
    )  # fmt: skip


def _values(matrix: ProfileMatrix) -> list[tuple[tuple[str, str, str], FloatArray, FloatArray]]:
    """Return seconds per step and mu by (role, function, class)."""
    assert matrix.by_step_s is not None
    typical = np.median(matrix.by_step_s, axis=1)
    out = []
    for role, name in enumerate(matrix.role_names):
        mine = matrix.role == role
        for f, function in enumerate(matrix.functions):
            if matrix.work[f] in _OWN and typical[f, mine].any():
                out.append(
                    (
                        (name, function, matrix.work[f]), typical[f, mine].astype(np.float64),
                        matrix.pattern[f, MU, mine].astype(np.float64),
                    )
                )  # fmt: skip
    for table in matrix.collectives:
        _, shortest = group_transfers(table)
        if np.isfinite(shortest).any():
            values = np.nanmedian(shortest, axis=1) * table.calls_per_step
            empty = np.full(1, np.nan)
            out.append((("", table.function, "collective"), values[np.isfinite(values)], empty))
    return out


def expected_signs(matrix: ProfileMatrix, expected: Expected, known: Sequence[Sign]) -> list[Sign]:
    """Return functions outside their box; what single workers explain already is left out."""
    if matrix.by_step_s is None:
        return []
    explained = {(s.function, int(w)) for s in known for w in s.workers}
    slow_devices = {int(w) for s in known if s.kind == "device" for w in s.workers}
    typical = np.median(matrix.by_step_s, axis=1)
    whole = [] if slow_devices else _whole_devices(matrix, expected, typical)
    slow_devices |= {int(w) for sign in whole for w in sign.workers}
    found: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for role, name in enumerate(matrix.role_names):
        mine = np.flatnonzero(matrix.role == role)
        for f, function in enumerate(matrix.functions):
            if matrix.work[f] not in _OWN or matrix.work[f] == "idle":
                continue
            box = expected.find(name, function)
            high = box.high_s * _MARGIN if box is not None else 0.0
            share = _LEAST_SHARE if box is not None else _NEW_SHARE
            least = max(high, (box.high_s if box is not None else 0.0) + share * matrix.step_time_s)
            for w in mine[typical[f, mine] > least].tolist():
                computes = matrix.work[f] in DEVICE_COMPUTE
                if (function, w) not in explained and not (computes and w in slow_devices):
                    found.setdefault((function, matrix.work[f]), []).append(
                        (w, box.high_s if box is not None else 0.0)
                    )
    signs = whole + [_outside(matrix, key, rows) for key, rows in found.items()]
    return signs + (_slower_collectives(matrix, expected) if not known and not signs else [])


def _outside(matrix: ProfileMatrix, key: tuple[str, str], rows: list[tuple[int, float]]) -> Sign:
    assert matrix.by_step_s is not None
    function, work = key
    who: IntArray = np.array([w for w, _ in rows], dtype=np.int64)
    high = np.array([h for _, h in rows])
    now = matrix.by_step_s[matrix.functions.index(function)][:, who].astype(np.float64)
    middle = float(np.median(now))
    said = (
        f"{seconds(middle)} a step, at most {seconds(float(high.max()))} in the healthy windows"
        if high.max() > 0
        else f"{seconds(middle)} a step, and it did not run in the healthy windows"
    )
    ratio = middle / high.max() if high.max() > 0 else 1e3
    return Sign(
        "expected",
        function,
        work,
        who,
        "beta",
        float(min(ratio, 1e3)),
        np.maximum(now - high, 0),
        said,
    )


def _whole_devices(matrix: ProfileMatrix, expected: Expected, typical: Float32) -> list[Sign]:
    """Return one sign for the workers whose compute functions are all slower by about as much."""
    compute = matrix.of_class(*DEVICE_COMPUTE)
    high = np.zeros((len(compute), len(matrix.ranks)))
    for role, name in enumerate(matrix.role_names):
        mine = matrix.role == role
        for i, f in enumerate(compute.tolist()):
            box = expected.find(name, matrix.functions[f])
            if box is not None:
                high[i, mine] = box.high_s
    total, limit = typical[compute].sum(axis=0), high.sum(axis=0)
    slow = np.flatnonzero((limit > 0) & (total > limit * _WHOLE_MARGIN))
    who = np.array(
        [w for w in slow.tolist() if alike(typical[compute, w], high[:, w])], dtype=np.int64
    )
    if not len(who):
        return []
    now = matrix.seconds(compute)[:, who]
    ratio = float(np.median(total[who] / limit[who]))
    return [
        Sign(
            "expected", "all compute kernels", "compute", who, "beta", ratio,
            np.maximum(now - limit[who], 0),
            f"{ratio:.2f} times the most that the healthy windows showed, all kernels alike",
        )
    ]  # fmt: skip


def _slower_collectives(matrix: ProfileMatrix, expected: Expected) -> list[Sign]:
    out = []
    for table in matrix.collectives:
        box = expected.find("", table.function)
        members, shortest = group_transfers(table)
        if box is None or not len(members) or not np.isfinite(shortest).any():
            continue
        now = float(np.nanmedian(shortest)) * table.calls_per_step
        if now > max(box.high_s * 1.25, box.high_s + 5 * _LEAST_SHARE * matrix.step_time_s):
            who = np.unique(table.worker)
            out.append(
                Sign(
                    "expected", table.function, "collective", who, "mu", now / max(box.high_s, 1e-12),
                    np.full((matrix.steps, len(who)), now - box.high_s),
                    f"{seconds(now)} a step once all are there, at most {seconds(box.high_s)} in the "
                    "healthy windows",
                )
            )  # fmt: skip
    return out


def write_expected(expected: Expected, path: Path) -> None:
    """Write boxes and their provenance as JSON."""
    row = {"rerail_expected_profile": VERSION, **asdict(expected)}
    path.write_text(json.dumps(row, indent=1) + "\n", encoding="utf-8")


def read_expected(path: Path) -> Expected:
    """Read what `write_expected` wrote.

    Raises:
        EvidenceError: the file is none of these, or of another version.
    """
    try:
        row = json.loads(path.read_text(encoding="utf-8"))
        if row["rerail_expected_profile"] != VERSION:
            raise ValueError(f"version {row['rerail_expected_profile']}")
        return Expected(
            tuple(Box(**box) for box in row["boxes"]),
            tuple(row["sources"]),
            int(row["workers"]),
            int(row["steps"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EvidenceError(
            f"{path}: not the boxes of healthy windows ({error})", subject=str(path), hint=_HINT
        ) from None
