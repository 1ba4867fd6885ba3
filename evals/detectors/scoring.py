"""Scores alarms against true changes, and job verdicts, by the standard definitions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from rerail.evals.detectors.step_sets import Labelled

IGNORED_ROWS = 100  # rows at the start where nothing counts
LATEST = 200  # rows after a change in which it must be said
SLACK = 20  # rows into the next change that are still allowed
EARLY = 3  # rows before a change that count as the change (onsets blurred by noise)


class Alarm(NamedTuple):
    """One alarm of any method: row where it was said, +1 slower or -1 faster, onset row."""

    said_at: int
    sign: int
    at: int


@dataclass(slots=True)
class Score:
    """Counts over many series, from which every rate follows."""

    true_changes: int = 0
    hits: int = 0
    onset_true: int = 0
    onset_hits: int = 0
    relief_true: int = 0
    relief_hits: int = 0
    false: int = 0
    steps: int = 0
    jobs: int = 0
    jobs_right: int = 0
    healthy_jobs: int = 0
    false_jobs: int = 0
    slow_jobs: int = 0
    missed_jobs: int = 0
    delays: list[int] = field(default_factory=list)
    relief_delays: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)

    def add(self, truth: Labelled, alarms: list[Alarm], verdict: bool | None = None) -> None:
        """Count one series. `verdict` says fail-slow or not; by default any rising alarm does."""
        self.steps += len(truth.values)
        used: set[int] = set()
        alarms = [alarm for alarm in alarms if alarm.said_at >= IGNORED_ROWS]
        changes = [change for change in truth.changes if change.at >= IGNORED_ROWS]
        for number, change in enumerate(changes):
            following = changes[number + 1].at if number + 1 < len(changes) else 10**12
            last = min(max(change.at, change.until) + LATEST, following + SLACK)
            hit = None
            for index, alarm in enumerate(alarms):
                inside = change.since - EARLY <= alarm.said_at <= last
                if index in used or alarm.sign != change.sign or not inside:
                    continue
                if hit is None:
                    hit = alarm
                    used.add(index)
                elif change.until > change.at and alarm.said_at <= change.until + SLACK:
                    used.add(index)  # a ramp may be told in several steps
            self._count(change.sign, hit is not None)
            if hit is not None:
                late = max(0, hit.said_at - change.at)
                (self.delays if change.sign > 0 else self.relief_delays).append(late)
                if change.until == change.at:
                    self.offsets.append(abs(hit.at - change.at))
        self.false += len(alarms) - len(used)
        self._count_job(truth, any(a.sign > 0 for a in alarms) if verdict is None else verdict)

    def _count(self, sign: int, found: bool) -> None:
        self.true_changes += 1
        self.hits += found
        if sign > 0:
            self.onset_true += 1
            self.onset_hits += found
        else:
            self.relief_true += 1
            self.relief_hits += found

    def _count_job(self, truth: Labelled, said: bool) -> None:
        self.jobs += 1
        self.jobs_right += said == truth.fail_slow
        if truth.fail_slow:
            self.slow_jobs += 1
            self.missed_jobs += not said
        else:
            self.healthy_jobs += 1
            self.false_jobs += said

    @property
    def precision(self) -> float:
        """Share of alarms that are true."""
        return self.hits / (self.hits + self.false) if self.hits + self.false else 1.0

    @property
    def recall(self) -> float:
        """Share of true changes that were said."""
        return self.hits / self.true_changes if self.true_changes else 1.0

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall."""
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0

    @property
    def delay(self) -> float:
        """Mean rows from a change to its alarm, onsets and reliefs together."""
        delays = self.delays + self.relief_delays
        return sum(delays) / len(delays) if delays else float("nan")

    @property
    def false_per_million(self) -> float:
        """False alarms per million steps."""
        return 1e6 * self.false / self.steps if self.steps else 0.0

    @property
    def accuracy(self) -> float:
        """Share of jobs judged right."""
        return self.jobs_right / self.jobs if self.jobs else float("nan")

    @property
    def fpr(self) -> float:
        """False positives over healthy jobs."""
        return self.false_jobs / self.healthy_jobs if self.healthy_jobs else float("nan")

    @property
    def fnr(self) -> float:
        """Missed jobs over slow jobs."""
        return self.missed_jobs / self.slow_jobs if self.slow_jobs else float("nan")
