"""Scores loss detectors: false alarms on healthy curves, spikes by size, missed divergences."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from rerail.domain.series import FloatArray
from rerail.evals.detectors.loss_sets import (
    LossCurve,
    diverging_curve,
    healthy_curve,
    spiky_curve,
)
from rerail.tools.detectors.events import EventKind
from rerail.tools.detectors.loss import find_loss_faults

Alarms = list[tuple[int, int]]  # (row where it began, row where it was said)


def ours(curve: LossCurve) -> Alarms:
    """Run the judged detector; restarts are known from the steps."""
    n = len(curve.values)
    restarts = tuple((np.flatnonzero(np.diff(curve.steps) < 0) + 1).tolist())
    kinds = (EventKind.LOSS_SPIKE, EventKind.LOSS_DIVERGENCE)
    events = find_loss_faults(np.arange(n), curve.values, restarts=restarts)
    return [(e.index, e.detected_at_step) for e in events if e.kind in kinds]


def z_score(curve: LossCurve, width: int = 100, k: float = 4.0) -> Alarms:
    """Alarm when a loss is k standard deviations above the mean of the last rows."""
    values = curve.values
    sums = np.concatenate([[0.0], np.cumsum(values)])
    squares = np.concatenate([[0.0], np.cumsum(values * values)])
    mean = (sums[width:-1] - sums[: -width - 1]) / width
    variance = np.maximum(1e-18, (squares[width:-1] - squares[: -width - 1]) / width - mean**2)
    return _grouped(np.flatnonzero(values[width:] > mean + k * np.sqrt(variance)) + width)


def times_mean(curve: LossCurve, factor: float = 1.5, width: int = 100) -> Alarms:
    """Alarm when a loss exceeds 1.5 times the mean of the last rows (InternEvo's rule)."""
    values = curve.values
    sums = np.concatenate([[0.0], np.cumsum(values)])
    mean = (sums[width:-1] - sums[: -width - 1]) / width
    return _grouped(np.flatnonzero(values[width:] > factor * mean) + width)


def running_median(curve: LossCurve, width: int = 100, k: float = 8.0) -> Alarms:
    """Alarm when a loss is k robust deviations above the running median of the last rows."""
    values = curve.values
    rows: list[int] = []
    step = 10
    for at in range(width, len(values), step):
        past = values[at - width : at]
        centre = float(np.median(past))
        sigma = max(1e-9, 1.4826 * float(np.median(np.abs(past - centre))))
        rows += (np.flatnonzero(values[at : at + step] > centre + k * sigma) + at).tolist()
    return _grouped(np.array(rows, dtype=np.int64))


def runmedic(curve: LossCurve) -> Alarms:
    """Run runmedic's spike and divergence checks, which see the whole finished curve.

    It lists at most ten spikes, and each counts as said at once; a divergence is said at the end.
    """
    checks: Any = import_module("runmedic.checks")
    model: Any = import_module("runmedic.model")
    run = model.Run("curve", "csv", "")
    for row, value in enumerate(curve.values.tolist()):
        run.get("loss").add(row, value)
    alarms: Alarms = []
    for finding in checks.run_checks(run, {"train_loss": ["loss"]}):
        if finding.check == "loss_spikes":
            listed = next(text for text in finding.evidence if text.startswith("spike steps:"))
            rows = [int(float(word)) for word in re.findall(r"\d[\d.e+]*", listed)]
            alarms += _grouped(np.array(rows, dtype=np.int64))
        elif finding.check == "divergence":
            alarms.append((int(finding.step), len(curve.values) - 1))
    return alarms


def _grouped(rows: FloatArray | np.ndarray, gap: int = 50) -> Alarms:
    alarms: Alarms = []
    last = -(10**9)
    for row in rows.tolist():
        if row - last > gap:
            alarms.append((int(row), int(row)))
        last = row
    return alarms


RULES: dict[str, Callable[[LossCurve], Alarms]] = {
    "rerail": ours,
    "z-score 100, k=4": z_score,
    "1.5 x mean (InternEvo)": times_mean,
    "running median, k=8": running_median,
    "runmedic (offline)": runmedic,
}


def rules_here() -> dict[str, Callable[[LossCurve], Alarms]]:
    """Return the rules whose package is installed."""
    if find_spec("runmedic") is None:
        return {name: rule for name, rule in RULES.items() if rule is not runmedic}
    return RULES


@dataclass(slots=True)
class LossScore:
    """Counts of one rule over all curves."""

    healthy_steps: int = 0
    false_healthy: int = 0
    spikes: list[tuple[float, bool]] = field(default_factory=list)
    alarms_on_spiky: int = 0
    delays: list[int] = field(default_factory=list)
    divergences: int = 0
    missed: int = 0
    divergence_delays: list[int] = field(default_factory=list)

    def recall(self, low: float, high: float = math.inf) -> float:
        """Return the share of spikes of a size in [low, high) that were said."""
        chosen = [found for size, found in self.spikes if low <= size < high]
        return sum(chosen) / len(chosen) if chosen else float("nan")

    @property
    def precision(self) -> float:
        """Share of the alarms on spiky curves that are spikes."""
        hits = sum(found for _, found in self.spikes)
        return min(1.0, hits / self.alarms_on_spiky) if self.alarms_on_spiky else 1.0

    @property
    def false_per_million(self) -> float:
        """False alarms per million healthy steps."""
        return 1e6 * self.false_healthy / self.healthy_steps if self.healthy_steps else 0.0


def score_rules(seed: int, curves: int = 50, n: int = 20_000) -> dict[str, LossScore]:
    """Return the score of each rule on the same curves: healthy, spiky (8 each), diverging (40)."""
    rules = rules_here()
    table = {name: LossScore() for name in rules}
    for number in range(curves):
        curve = healthy_curve(np.random.default_rng((seed, 1, number)), n)
        for name, rule in rules.items():
            table[name].healthy_steps += n
            table[name].false_healthy += len(rule(curve))
    for number in range(40):
        spiky = spiky_curve(np.random.default_rng((seed, 2, number)), n, 8)
        wild = diverging_curve(np.random.default_rng((seed, 3, number)), 6000)
        for name, rule in rules.items():
            _score_spiky(table[name], spiky, rule(spiky))
            _score_divergence(table[name], wild, rule(wild))
    return table


def _score_spiky(score: LossScore, curve: LossCurve, alarms: Alarms) -> None:
    score.alarms_on_spiky += len(alarms)
    for at, size, rows in curve.spikes:
        said = [row for _, row in alarms if at <= row <= at + rows]
        score.spikes.append((size, bool(said)))
        if said:
            score.delays.append(said[0] - at)


def _score_divergence(score: LossScore, curve: LossCurve, alarms: Alarms) -> None:
    assert curve.diverges_at is not None
    said = [row for _, row in alarms if row >= curve.diverges_at]
    score.divergences += 1
    if said:
        score.divergence_delays.append(said[0] - curve.diverges_at)
    else:
        score.missed += 1
