"""Bar M1: the split is exact and fast, beside trying everything, a MILP, rounding and the paper's variance."""

from __future__ import annotations

import itertools
import random
import statistics
import time
from dataclasses import dataclass

import numpy as np

from rerail.recovery.mitigation.micro_batches import makespan_s, split


@dataclass(frozen=True)
class Exactness:
    """Small instances against all possibilities; `variance_worse` counts the paper's objective."""

    instances: int
    mismatches: int
    variance_worse: int
    variance_worst_ratio: float


@dataclass(frozen=True)
class Speed:
    """One size: seconds and makespans; the MILP is None where it was not run."""

    groups: int
    total: int
    exact_s: float
    milp_s: float | None
    exact: float
    milp: float | None
    rounding: float
    uniform: float


def exactness(instances: int, seed: int) -> Exactness:
    """Compare with the best of all splits, and with the split of least variance."""
    draw = random.Random(seed)
    mismatches = worse = 0
    worst = 1.0
    for _ in range(instances):
        count = draw.randint(2, 4)
        total = draw.randint(count, 16)
        times = [round(draw.uniform(0.5, 3.0), 2) for _ in range(count)]
        options = [
            (*head, total - sum(head))
            for head in itertools.product(range(1, total), repeat=count - 1)
            if total - sum(head) >= 1
        ]
        best = min(makespan_s(times, one) for one in options)
        even = min(options, key=lambda one: float(np.var(np.array(times) * np.array(one))))
        mismatches += makespan_s(times, split(times, total)) > best * (1 + 1e-12)
        ratio = makespan_s(times, even) / best
        worse += ratio > 1 + 1e-9
        worst = max(worst, ratio)
    return Exactness(instances, mismatches, worse, worst)


def speed(groups: int, per_group: int, seed: int, *, with_milp: bool) -> Speed:
    """Time one size, the median of five; a twentieth of the groups is slow."""
    draw = np.random.default_rng(seed)
    times = draw.normal(1.0, 0.02, groups)
    times[: max(1, groups // 20)] *= 2.5
    total = groups * per_group
    took, counts = [], []
    for _ in range(5):
        began = time.perf_counter()
        counts = split(times, total)
        took.append(time.perf_counter() - began)
    level = total / float((1 / times).sum())
    rounded = np.maximum(1, np.round(level / times)).astype(int)
    while rounded.sum() != total:  # spread what rounding lost or gained over the fastest
        step = 1 if rounded.sum() < total else -1
        for place in np.argsort(times)[: abs(total - rounded.sum())]:
            rounded[place] += step
    milp_s, milp = _milp(times, total) if with_milp else (None, None)
    return Speed(
        groups,
        total,
        statistics.median(took),
        milp_s,
        makespan_s(times, counts),
        milp,
        makespan_s(times, rounded.tolist()),
        makespan_s(times, [per_group] * groups),
    )


def _milp(times: np.ndarray, total: int) -> tuple[float, float]:
    """Return time and makespan of the same problem as a mixed-integer programme (HiGHS)."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    count = len(times)
    began = time.perf_counter()
    rows = np.zeros((count + 1, count + 1))
    rows[:count, :count] = np.diag(times)
    rows[:count, count] = -1.0
    rows[count, :count] = 1.0
    low = np.append(np.full(count, -np.inf), total)
    high = np.append(np.zeros(count), total)
    found = milp(
        c=np.append(np.zeros(count), 1.0),
        constraints=LinearConstraint(rows, low, high),
        integrality=np.append(np.ones(count), 0),
        bounds=Bounds(np.append(np.ones(count), 0.0), np.inf),
    )
    assert found.fun is not None  # a split always exists
    return time.perf_counter() - began, float(found.fun)
