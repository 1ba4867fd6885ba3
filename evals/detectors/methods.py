"""The judged detector and its baselines behind one interface: values in, alarms out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from rerail.domain.series import FloatArray
from rerail.evals.detectors.scoring import Alarm
from rerail.tools.detectors.bocd import find_changes
from rerail.tools.detectors.events import Event, EventKind, Stage
from rerail.tools.detectors.slow_steps import CONFIRM, SlowStepDetector

Run = Callable[[FloatArray], list[list[Alarm]]]
_SIGN = {
    EventKind.SLOW_ONSET: 1,
    EventKind.CREEP: 1,
    EventKind.SLOW_RELIEF: -1,
    EventKind.SPEED_UP: -1,
}


@dataclass(frozen=True, slots=True)
class Method:
    """A named method: many series [n_series, n] in, alarms of each out.

    `slow` methods see few series, `tiny` ones, of milliseconds per point, two short ones.
    """

    name: str
    run: Run
    needs: str | None = None
    slow: bool = False
    tiny: bool = False

    def missing(self) -> str | None:
        """Return why the method cannot run here, or None."""
        if self.needs is None:
            return None
        try:
            import_module(self.needs)
        except ImportError:
            return f"{self.name}: package {self.needs} is not installed"
        return None


def _each(one: Callable[[FloatArray], list[Alarm]]) -> Run:
    return lambda values: [one(series) for series in values]


def first_alarms(series: FloatArray) -> list[Alarm]:
    """Run the detector and return every event at its first alarm, even if withdrawn later."""
    detector = SlowStepDetector()
    seen: dict[tuple[EventKind, int], Event] = {}
    for event in detector.run(np.arange(len(series)), series):
        if event.kind in _SIGN and (event.stage is not Stage.BRIEF):
            seen.setdefault((event.kind, event.index), event)
    return [Alarm(e.detected_at_step, _SIGN[e.kind], e.step) for e in seen.values()]


def confirmed_alarms(series: FloatArray) -> list[Alarm]:
    """Run the detector and return the confirmed events, said when they were confirmed."""
    detector = SlowStepDetector()
    detector.run(np.arange(len(series)), series)
    return [
        Alarm(max(e.detected_at_step, e.index + CONFIRM - 1), _SIGN[e.kind], e.step)
        for e in detector.events
        if e.kind in _SIGN and e.stage is Stage.CONFIRMED
    ]


def _bocd(*, verify: bool, medians: bool = False) -> Run:
    def run(values: FloatArray) -> list[list[Alarm]]:
        return [
            [Alarm(c.said_at, 1 if c.after > c.before else -1, c.at) for c in changes]
            for changes in find_changes(values, verify=verify, medians=medians)
        ]

    return run


def _merge(alarms: list[Alarm], gap: int = 10) -> list[Alarm]:
    """Keep the first of alarms of one sign that follow each other closely."""
    kept: list[Alarm] = []
    for alarm in alarms:
        if not (kept and kept[-1].sign == alarm.sign and alarm.said_at - kept[-1].said_at < gap):
            kept.append(alarm)
    return kept


def sliding_window(series: FloatArray, width: int = 10, gate: float = 0.10) -> list[Alarm]:
    """Compare the mean of the last rows with the mean of the rows before them."""
    sums = np.concatenate([[0.0], np.cumsum(series)])
    means = (sums[width:] - sums[:-width]) / width
    ratio = means[width:] / means[:-width] - 1
    alarms: list[Alarm] = []
    quiet = -1
    for row in np.flatnonzero(np.abs(ratio) > gate):
        said = int(row) + 2 * width - 1
        if said >= quiet:
            alarms.append(Alarm(said, 1 if ratio[row] > 0 else -1, said - width))
            quiet = said + 2 * width
    return alarms


def _by_medians(series: FloatArray, row: int, width: int = 20) -> int:
    before = np.median(series[max(0, row - 2 * width) : max(1, row - width)])
    after = np.median(series[max(0, row - width // 4) : row + 1])
    return 1 if after > before else -1


def page_hinkley(series: FloatArray) -> list[Alarm]:
    """Run river's Page-Hinkley on the series over its median of the first rows."""
    drift: Any = import_module("river.drift")
    detector = drift.PageHinkley(min_instances=30, delta=0.02, threshold=0.5)
    return _river(detector, series)


def adwin(series: FloatArray) -> list[Alarm]:
    """Run river's ADWIN on the series over its median of the first rows."""
    drift: Any = import_module("river.drift")
    return _river(drift.ADWIN(delta=1e-6, clock=8), series)


def _river(detector: Any, series: FloatArray) -> list[Alarm]:
    scaled = (series / np.median(series[:30])).tolist()
    alarms = []
    for row, value in enumerate(scaled):
        detector.update(value)
        if detector.drift_detected:
            alarms.append(Alarm(row, _by_medians(series, row), row))
    return _merge(alarms)


def pelt(series: FloatArray, gate: float = 0.10) -> list[Alarm]:
    """Run ruptures' PELT (l2, offline) on log times and keep changes of 10 % and more."""
    ruptures: Any = import_module("ruptures")
    logs = np.log(series)
    sigma = 1.4826 * float(np.median(np.abs(np.diff(logs)))) / math.sqrt(2)
    cost = ruptures.Pelt(model="l2", min_size=5, jump=5).fit(logs.reshape(-1, 1))
    edges = [0, *cost.predict(pen=max(20 * sigma * sigma * math.log(len(logs)), 0.05))]
    alarms = []
    for before, at, after in zip(edges[:-2], edges[1:-1], edges[2:], strict=True):
        change = float(np.median(logs[at:after]) - np.median(logs[before:at]))
        if abs(change) >= math.log1p(gate) * 0.9:
            alarms.append(Alarm(at + 10, 1 if change > 0 else -1, at))
    return alarms


def fast_bocpd(series: FloatArray) -> list[Alarm]:
    """Run fast-bocpd (C core, one call per point) on log times; a change is a fallen MAP run."""
    library: Any = import_module("fast_bocpd")
    logs = np.log(series)
    first = logs[:40]
    sigma = max(0.002, 1.4826 * float(np.median(np.abs(first - np.median(first)))))
    scaled = ((logs - np.median(first)) / sigma).tolist()
    detector = library.BOCPD(
        library.GaussianNIG(0.0, 0.02, 1.0, 1.0), library.ConstantHazard(200.0)
    )
    alarms, before = [], 0
    for row, value in enumerate(scaled):
        detector.update(value)
        run = int(detector.get_map_run_length())
        if run < before and row - run > 40:
            alarms.append(Alarm(row, _by_medians(series, row), row - run))
        before = run
    return _merge(alarms)


def e_divisive(series: FloatArray) -> list[Alarm]:
    """Run Apache Otava's e-divisive with its t-test on the whole series, as in its CI use."""
    otava: Any = import_module("otava.analysis")
    try:
        found, _ = otava.compute_change_points(series, min_magnitude=0.1)
    except ValueError:
        return []  # version 0.8 fails where a change point lies on the edge of one of its windows
    alarms = []
    for change in found:
        stats = change.stats
        sign = 1 if stats.mean_after() > stats.mean_before() else -1
        alarms.append(Alarm(int(change.index) + 10, sign, int(change.index)))
    return alarms


class Focus:
    """FOCuS with known pre-change mean: the exact likelihood ratio over all onsets.

    The onsets that can be the best lie on the convex hull of the cumulative sums (Romano et al.,
    JMLR 24, 2023); written from the idea, Gaussian cost, both directions.
    """

    def __init__(self) -> None:
        self.t, self.sum = 0, 0.0
        self.lower: list[tuple[int, float]] = [(0, 0.0)]
        self.upper: list[tuple[int, float]] = [(0, 0.0)]

    def update(self, x: float) -> tuple[float, float, int, int]:
        """Take one centred value; return the statistics and onsets of a rise and of a fall."""
        self.t += 1
        self.sum += x
        rise, rise_at = self._best(self.lower, 1)
        fall, fall_at = self._best(self.upper, -1)
        self._push(self.lower, 1)
        self._push(self.upper, -1)
        return rise, fall, rise_at, fall_at

    def _best(self, hull: list[tuple[int, float]], sign: int) -> tuple[float, int]:
        best, at = 0.0, self.t
        for t, total in hull:
            gap = sign * (self.sum - total)
            if gap > 0 and gap * gap > best * 2 * (self.t - t):
                best, at = gap * gap / (2 * (self.t - t)), t
        return best, at

    def _push(self, hull: list[tuple[int, float]], sign: int) -> None:
        point = (self.t, self.sum)
        while len(hull) >= 2:
            (t0, s0), (t1, s1) = hull[-2], hull[-1]
            if sign * ((s1 - s0) * (point[0] - t1) - (point[1] - s1) * (t1 - t0)) < 0:
                break
            hull.pop()
        hull.append(point)


def focus(
    series: FloatArray, hold: int = 5, gate: float = 0.08, limit: float = 25.0
) -> list[Alarm]:
    """Run FOCuS on log times clipped at six sigmas, with a held alarm and an 8 % gate."""
    logs = np.log(series)
    alarms: list[Alarm] = []
    begin = 0
    while begin + 50 < len(logs):
        first = logs[begin : begin + 40]
        level = float(np.median(first))
        sigma = max(0.002, 1.4826 * float(np.median(np.abs(first - level))))
        found = _focus_from(logs, begin + 40, level, sigma, hold, gate, limit)
        if found is None:
            break
        alarms.append(found)
        begin = found.said_at + 1
    return alarms


def _focus_from(
    logs: FloatArray, begin: int, level: float, sigma: float, hold: int, gate: float, limit: float
) -> Alarm | None:
    detector = Focus()
    high = 0
    centred = np.clip((logs - level) / sigma, -6, 6)
    for row in range(begin, len(logs)):
        rise, fall, rise_at, fall_at = detector.update(float(centred[row]))
        high = high + 1 if max(rise, fall) > limit else 0
        if high < hold:
            continue
        at = begin + (rise_at if rise >= fall else fall_at)
        change = float(np.median(logs[at : row + 1])) - level
        if abs(change) >= math.log1p(gate):
            return Alarm(row, 1 if change > 0 else -1, at)
    return None


METHODS: tuple[Method, ...] = (
    Method("rerail, first alarm", _each(first_alarms)),
    Method("rerail, confirmed", _each(confirmed_alarms)),
    Method("BOCD", _bocd(verify=False), slow=True),
    Method("BOCD+V (FALCON)", _bocd(verify=True), slow=True),
    Method("BOCD+V, medians", _bocd(verify=True, medians=True), slow=True),
    Method("sliding window 10", _each(sliding_window)),
    Method("FOCuS, hold 5", _each(focus), slow=True),
    Method("Page-Hinkley (river)", _each(page_hinkley), needs="river"),
    Method("ADWIN (river)", _each(adwin), needs="river"),
    Method("fast-bocpd", _each(fast_bocpd), needs="fast_bocpd", slow=True),
    Method("PELT (ruptures)", _each(pelt), needs="ruptures", slow=True),
    Method("e-divisive (otava)", _each(e_divisive), needs="otava", slow=True, tiny=True),
)
