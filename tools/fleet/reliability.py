"""Mean time to failure against job size, with exact intervals, and what larger jobs have to expect.

A job of N GPUs fails N times as often as one GPU where GPUs fail independently of each other: MTTF(N) =
1 / (N r), r in failures per GPU-hour (Kokolis et al., Revisiting Reliability in Large-Scale Machine Learning
Research Clusters, HPCA 2025, section III). Whether the sizes share one r is tested; where they do not, a
projection is no more than a line through the points.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rerail.tools.fleet.runs import Run

CONFIDENCE = 0.95
DOUBTFUL = 0.01
"""Below this probability the sizes do not share one rate."""
FURTHER = (2, 4, 8, 16)


@dataclass(frozen=True, slots=True)
class Interval:
    """Mean time to failure in hours with its 95 % interval; None is without bound, or not known."""

    hours: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class SizeClass:
    """Jobs of `least` to `most` GPUs: attempts, wall-clock hours, failures, mean time to failure of one."""

    least: int
    most: int
    attempts: int
    hours: float
    gpu_hours: float
    failures: int
    mttf: Interval


@dataclass(frozen=True, slots=True)
class Reliability:
    """The classes of size, the common rate, its projection to larger jobs, and how well one rate fits.

    `per_gpu_hour` is None without a failure. `one_rate` is the probability of such differences between
    the classes under one rate; None with fewer than two classes in which a failure was to be expected.
    """

    sizes: tuple[SizeClass, ...]
    per_gpu_hour: float | None
    projection: tuple[tuple[int, Interval], ...]
    one_rate: float | None


def reliability(runs: Sequence[Run], failed: Collection[tuple[str, int]]) -> Reliability:
    """Return the reliability of attempts with GPUs; `failed` names (job, attempt) that the site let down."""
    classes: dict[int, list[Run]] = {}
    for run in runs:
        if run.gpus > 0:
            classes.setdefault(max(3, math.ceil(math.log2(run.gpus))), []).append(run)
    sizes = tuple(_size(power, classes[power], frozenset(failed)) for power in sorted(classes))
    failures = sum(one.failures for one in sizes)
    gpu_hours = sum(one.gpu_hours for one in sizes)
    largest = sizes[-1].most if sizes else 0
    projection = tuple(
        (largest * times, mean_time(gpu_hours / (largest * times), failures)) for times in FURTHER
    ) if failures else ()  # fmt: skip
    return Reliability(
        sizes, failures / gpu_hours if failures else None, projection, _one_rate(sizes)
    )


def mean_time(hours: float, failures: int) -> Interval:
    """Return the mean time between failures seen over so many hours, with Garwood's exact interval.

    Without a failure only the lower bound is known.
    """
    from scipy.stats import chi2

    tail = (1 - CONFIDENCE) / 2
    low = 2 * hours / float(chi2.ppf(1 - tail, 2 * failures + 2))
    if not failures:
        return Interval(None, low, None)
    return Interval(hours / failures, low, 2 * hours / float(chi2.ppf(tail, 2 * failures)))


def _size(power: int, runs: Sequence[Run], failed: frozenset[tuple[str, int]]) -> SizeClass:
    failures = sum((run.job, run.attempt) in failed for run in runs)
    hours = sum(run.hours for run in runs)
    return SizeClass(
        least=1 if power == 3 else (1 << (power - 1)) + 1,
        most=1 << power,
        attempts=len(runs),
        hours=hours,
        gpu_hours=sum(run.gpu_hours for run in runs),
        failures=failures,
        mttf=mean_time(hours, failures),
    )


def _one_rate(sizes: Sequence[SizeClass]) -> float | None:
    """Return Pearson's test of failures in proportion to GPU-hours, over classes that expect five."""
    from scipy.stats import chi2

    failures, gpu_hours = sum(s.failures for s in sizes), sum(s.gpu_hours for s in sizes)
    if not failures:
        return None
    expected = [(s.failures, failures * s.gpu_hours / gpu_hours) for s in sizes]
    # Small classes stand together: Pearson's statistic needs five expected in each.
    merged: list[tuple[int, float]] = []
    for seen, wanted in expected:
        if merged and merged[-1][1] < 5:
            merged[-1] = (merged[-1][0] + seen, merged[-1][1] + wanted)
        else:
            merged.append((seen, wanted))
    if len(merged) > 1 and merged[-1][1] < 5:
        last = merged.pop()
        merged[-1] = (merged[-1][0] + last[0], merged[-1][1] + last[1])
    if len(merged) < 2:
        return None
    statistic = sum((seen - wanted) ** 2 / wanted for seen, wanted in merged)
    return float(chi2.sf(statistic, len(merged) - 1))
