"""Throughput or MFU against the run's own history: the step detector on the inverse.

Higher is better here. A throughput series has no step time of its own, so lost time is not priced.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rerail.domain.series import FloatArray, MetricSeries, StepSeries
from rerail.tools.detectors.events import Event, EventKind
from rerail.tools.detectors.slow_steps import SlowStepDetector


def throughput(series: StepSeries) -> FloatArray:
    """Return work per second [n]: tokens / step time, or steps per second if tokens are unknown."""
    work = np.ones(len(series)) if series.tokens is None else series.tokens
    usable = series.step_time_s > 0
    return np.asarray(np.where(usable, work / np.where(usable, series.step_time_s, 1.0), np.nan))


def as_steps(metric: MetricSeries, work: float = 1.0) -> StepSeries:
    """Return a rate (samples/s, TFLOP/s, MFU) as a series of seconds per `work` units."""
    usable = metric.value > 0
    seconds = np.where(usable, work / np.where(usable, metric.value, 1.0), np.nan)
    return StepSeries(metric.name, metric.step, seconds, rank=metric.rank, time=metric.time)


def find_decline(metric: MetricSeries) -> list[Event]:
    """Return declines and recoveries of a rate, with levels in the unit of the rate."""
    series = as_steps(metric)
    detector = SlowStepDetector()
    detector.run(series.step, series.step_time_s)
    events = []
    for event in detector.events:
        before, after = 1 / event.before, 1 / event.after
        kind = event.kind
        if kind in (EventKind.SLOW_ONSET, EventKind.CREEP):
            kind = EventKind.THROUGHPUT_DECLINE
        events.append(
            replace(event, kind=kind, before=before, after=after, change=after / before - 1)
        )
    return events
