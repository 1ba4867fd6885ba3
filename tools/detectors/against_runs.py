"""A run beside good runs of the same job: loss at equal steps, step time, throughput, learning rate.

What a series alone cannot show (wrong labels, a learning rate of zero, slow from the first step) shows here.
The noise is that of the good runs: with two or more of them how they differ from each other, with one
alone its own scatter, so that only larger differences count. What cannot be compared is said.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from rerail.domain.series import FloatArray, IntArray, StepSeries

LEAST_POINTS = 5  # values of one window
MOST_WINDOWS = 20
LEAST_WINDOWS = 4
LASTING = 3  # windows in a row, up to the end, that make a difference
SIGMAS = 5.0
LEAST_CHANGE = 0.05  # log; two good runs or more
LEAST_CHANGE_ONE = 0.10  # log; one good run, whose distance to another is not known
MOST_LIMIT = 0.4  # log; where only larger differences would show, nothing is said
EQUAL_RATE = 0.01  # learning rates are computed, not measured
_LIKE_SIGMA = 1.4826
_FLAT = 0.03  # log; a loss that falls less than this over the run stands still
_NEAR_CHANCE = 0.01
_MOST_CLASSES = 20  # beyond it some ln(k) is near any number
_GUARD = 1e-12


@dataclass(frozen=True, slots=True)
class Check:
    """One comparison: `status` is established, supported, hypothesis, unknown, or same where nothing differs.

    `observed` and `expected` are levels behind `since_step`, `noise` a relative standard deviation;
    NaN where nothing is known. `worse` tells that the run is worse than the good ones, `from_start` that it
    differs from the first steps on that were compared.
    """

    what: str
    status: str
    says: str
    worse: bool = False
    since_step: int | None = None
    observed: float = math.nan
    expected: float = math.nan
    noise: float = math.nan
    from_start: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the check as plain JSON values; unknown numbers become null."""
        row = asdict(self)
        return {
            k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()
        }


def against_runs(series: StepSeries, good: Sequence[StepSeries]) -> tuple[Check, ...]:
    """Return what differs from good runs of the same job, one check per number that both could report."""
    silent = [one for one in (series, *good) if not one.steps_told]
    if silent and len(silent) <= len(good):
        # Entries that are only counted do not stand beside steps; two such logs of one job do beside each other.
        why = f"{silent[0].name} does not say its steps"
        return tuple(
            Check(what, "unknown", f"whether the {what} is as it should be cannot be known: {why}")
            for what in ("loss", "step time", "learning rate")
        )
    return (
        _loss(series, good),
        _time(series, good),
        _learning_rate(series, good),
    )


@dataclass(frozen=True, slots=True)
class _Windows:
    """Windows of steps: where each begins, and log levels of the run [w] and of the good runs [runs, w]."""

    first: IntArray
    run: FloatArray
    good: FloatArray
    noise: float
    limit: float


def _loss(series: StepSeries, good: Sequence[StepSeries]) -> Check:
    pairs = [_finite(one, one.loss) for one in (series, *good)]
    windows = _windows(pairs)
    if isinstance(windows, str):
        return Check(
            "loss", "unknown", f"whether the loss is as it should be cannot be known: {windows}"
        )
    found = _lasting(windows)
    if found is None:
        return _no_difference("loss", windows, good)
    at, observed, expected = found
    since, change = int(windows.first[at]), math.log(observed / expected)
    where = "from the first step on" if at == 0 else f"from about step {since} on"
    text = (
        f"the loss is {observed:.4g}, where {_runs(good)} had {expected:.4g} at equal steps, "
        f"{where} (noise {windows.noise:.1%})"
    )
    return Check(
        "loss", _status(change, windows.limit, len(good)), text + _stands_still(windows), change > 0,
        since, observed, expected, windows.noise, at == 0,
    )  # fmt: skip


def _no_difference(name: str, windows: _Windows, good: Sequence[StepSeries]) -> Check:
    if windows.limit > MOST_LIMIT:
        says = (
            f"whether the {name} is as it should be cannot be known: it varies by {windows.noise:.0%} in "
            f"{_runs(good)}, and only more than {math.expm1(windows.limit):.0%} would show"
        )
        return Check(name, "unknown", says, noise=windows.noise)
    says = f"the {name} is that of {_runs(good)} at equal steps (noise {windows.noise:.1%})"
    return Check(name, "same", says, noise=windows.noise)


def _stands_still(windows: _Windows) -> str:
    """Say that the loss does not fall while the good one does, and where it stands if that tells."""
    half = len(windows.run) // 2
    mine = float(np.median(windows.run[half:]) - windows.run[0])
    theirs = np.median(windows.good, axis=0)
    if mine < -_FLAT or float(np.median(theirs[half:]) - theirs[0]) > -2 * _FLAT:
        return ""
    level = math.exp(float(np.median(windows.run[half:])))
    for classes in range(2, _MOST_CLASSES + 1):
        if abs(level / math.log(classes) - 1) < _NEAR_CHANCE:
            return (
                f"; it stands still at about ln({classes}) = {math.log(classes):.3f}, which is what guessing among "
                f"{classes} classes gives: look at the labels"
            )
    return "; it stands still while the good one falls"


def _time(series: StepSeries, good: Sequence[StepSeries]) -> Check:
    """Compare throughput where all report it, else step time; the first window is warm-up."""
    name, sign = "throughput", -1.0
    pairs = [_positive(one, one.throughput) for one in (series, *good)]
    if any(len(step) == 0 for step, _ in pairs):
        name, sign = "step time", 1.0
        pairs = [
            _positive(one, None if _is_rate(one) else one.step_time_s) for one in (series, *good)
        ]
    windows = _windows(pairs, warm_up=True)
    if isinstance(windows, str):
        why = windows.replace(" it", " a step time or throughput of this kind")
        return Check("step time", "unknown", f"whether the run is slow cannot be known: {why}")
    found = _lasting(windows)
    if found is None:
        return _no_difference(name, windows, good)
    at, observed, expected = found
    change = sign * math.log(observed / expected)
    since = int(windows.first[at])
    where = "from the start" if at == 0 else f"from about step {since} on"
    ratio = math.exp(abs(change))
    text = (
        f"the run is {ratio:.2f} times {'slower' if change > 0 else 'faster'} than {_runs(good)}, {where}: "
        f"{name} {observed:.4g} and {expected:.4g} (noise {windows.noise:.1%})"
    )
    return Check(
        name,
        _status(change, windows.limit, len(good)),
        text,
        change > 0,
        since,
        observed,
        expected,
        windows.noise,
        at == 0,
    )


def _learning_rate(series: StepSeries, good: Sequence[StepSeries]) -> Check:
    """Compare learning rates at equal steps, where they are computed and not measured."""
    name = "learning rate"
    mine = _by_step(series)
    others = [_by_step(one) for one in good]
    if not mine or not all(others):
        whose = "this run" if not mine else "a good run"
        return Check(
            name,
            "unknown",
            f"whether the learning rate is right cannot be known: {whose} does not report it",
        )
    shared = sorted(set(mine).intersection(*others))
    if len(shared) < LASTING:
        return Check(
            name,
            "unknown",
            "whether the learning rate is right cannot be known: the runs share no steps",
        )
    lowest = {step: min(one[step] for one in others) for step in shared}
    highest = {step: max(one[step] for one in others) for step in shared}
    agreed = [s for s in shared if highest[s] - lowest[s] <= EQUAL_RATE * highest[s] + _GUARD]
    if len(agreed) < max(LASTING, len(shared) // 2):
        return Check(
            name,
            "unknown",
            "whether the learning rate is right cannot be known: the good runs differ in it",
        )
    wrong = [
        s
        for s in agreed
        if abs(mine[s] - highest[s]) > EQUAL_RATE * max(abs(mine[s]), highest[s]) + _GUARD
    ]
    if len(wrong) < LASTING:
        return Check(
            name, "same", f"the learning rate is that of {_runs(good)} at {len(agreed)} equal steps"
        )
    since = wrong[0]
    # The step at which they are furthest apart says most.
    at = max(wrong, key=lambda step: abs(mine[step] - highest[step]))
    if all(mine[step] == 0 for step in agreed):
        text = (
            f"the learning rate is 0 at every step, where {_runs(good)} had up to "
            f"{max(highest.values()):.4g}: nothing is learned"
        )
    else:
        text = (
            f"the learning rate is {mine[at]:.4g} at step {at}, where {_runs(good)} had {highest[at]:.4g}; "
            f"it differs from step {since} on"
        )
    return Check(
        name, "established", text, True, since, mine[at], highest[at], 0.0, since == agreed[0]
    )


def _runs(good: Sequence[StepSeries]) -> str:
    return f"the good run {good[0].name}" if len(good) == 1 else f"the {len(good)} good runs"


def _status(change: float, limit: float, runs: int) -> str:
    """One good run does not tell how far two good ones may lie apart; a small difference stays a guess."""
    return "supported" if runs > 1 or abs(change) >= 2 * limit else "hypothesis"


def _is_rate(series: StepSeries) -> bool:
    """Tell whether the step times are only the inverse of a rate, so that they are no seconds."""
    if series.throughput is None:
        return False
    product = series.step_time_s * series.throughput
    known = product[np.isfinite(product)]
    return bool(len(known) and np.allclose(known, 1.0, rtol=1e-9))


def _finite(series: StepSeries, values: FloatArray | None) -> tuple[IntArray, FloatArray]:
    if values is None:
        return series.step[:0], np.zeros(0)
    return _last_of_each(series.step, values, np.isfinite(values))


def _positive(series: StepSeries, values: FloatArray | None) -> tuple[IntArray, FloatArray]:
    if values is None:
        return series.step[:0], np.zeros(0)
    return _last_of_each(series.step, values, np.isfinite(values) & (values > 0))


def _last_of_each(step: IntArray, values: FloatArray, known: Any) -> tuple[IntArray, FloatArray]:
    """Return steps in rising order; of a step that was run twice, after a restart, the last value."""
    step, values = step[known][::-1], values[known][::-1]
    unique, first = np.unique(step, return_index=True)
    return unique, values[first]


def _by_step(series: StepSeries) -> dict[int, float]:
    if series.learning_rate is None:
        return {}
    step, values = _finite(series, series.learning_rate)
    return dict(zip(step.tolist(), values.tolist(), strict=True))


def _windows(pairs: list[tuple[IntArray, FloatArray]], *, warm_up: bool = False) -> _Windows | str:
    """Cut the steps that all runs share into windows; a sentence where that cannot be done."""
    if len(pairs[0][0]) == 0:
        return "this run does not report it"
    if any(len(step) == 0 for step, _ in pairs[1:]):
        return "a good run does not report it"
    first, last = max(int(s[0]) for s, _ in pairs), min(int(s[-1]) for s, _ in pairs)
    cut = [((s >= first) & (s <= last)) for s, _ in pairs]
    kept = [(s[c], v[c]) for (s, v), c in zip(pairs, cut, strict=True)]
    fewest = min(len(s) for s, _ in kept)
    count = min(MOST_WINDOWS, fewest // LEAST_POINTS)
    if count < LEAST_WINDOWS:
        return (
            f"the runs share {fewest} reported steps, and {LEAST_POINTS * LEAST_WINDOWS} are needed"
        )
    if any((v <= 0).any() for _, v in kept):
        return "its values are not all positive"
    edges = np.linspace(first, last + 1, count + 1)
    levels, errors = [], []
    for step, value in kept:
        place = np.searchsorted(edges, step, side="right") - 1
        logs = np.log(value)
        parts = [logs[place == at] for at in range(count)]
        if min(len(part) for part in parts) < 2:
            return "the runs report too few steps in some part of what they share"
        levels.append([float(np.median(part)) for part in parts])
        scatter = _LIKE_SIGMA * float(np.median(np.abs(np.diff(logs)))) / math.sqrt(2)
        errors.append(1.25 * scatter / math.sqrt(len(logs) / count))
    table = np.array(levels)[:, 1:] if warm_up else np.array(levels)
    begins = np.ceil(edges[1:-1] if warm_up else edges[:-1]).astype(np.int64)
    noise = _noise(table[1:], errors)
    least = LEAST_CHANGE if len(pairs) > 2 else LEAST_CHANGE_ONE
    return _Windows(begins, table[0], table[1:], noise, max(least, SIGMAS * noise))


def _noise(good: FloatArray, errors: list[float]) -> float:
    """Return how far the level of a window of one good run lies from that of others, as a log deviation."""
    own = math.hypot(errors[0], max(errors[1:]))
    if len(good) > 1:
        spread = float(np.sqrt(np.mean(np.var(good, axis=0, ddof=1))))
        return max(own, spread * math.sqrt(1 + 1 / len(good)))
    # What remains of one run when its own course is taken out: second differences of its windows.
    bends = np.diff(good[0], n=2)
    wander = _LIKE_SIGMA * float(np.median(np.abs(bends))) / math.sqrt(6)
    return max(own, math.sqrt(2) * wander)


def _lasting(windows: _Windows) -> tuple[int, float, float] | None:
    """Return the window from which the run differs up to the end, and both levels behind it."""
    change = windows.run - np.median(windows.good, axis=0)
    sign = math.copysign(1.0, float(np.median(change[-LASTING:])))
    at = len(change)
    while at > 0 and sign * change[at - 1] > windows.limit:
        at -= 1
    if len(change) - at < LASTING:
        return None
    observed = math.exp(float(np.median(windows.run[at:])))
    return at, observed, math.exp(float(np.median(np.median(windows.good, axis=0)[at:])))
