"""What a forecast adds to the verdict on a series: a run that is slow from its first step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rerail.domain.series import StepSeries
from rerail.tools.detectors.events import Event, EventKind, SeriesOutcome, SeriesReport
from rerail.tools.forecast.compare import Expected, compare

_LEAST_ROWS = 8  # so many steps are enough to say that a run began slow


def with_expected(series: StepSeries, report: SeriesReport, expected: Expected) -> SeriesReport:
    """Return the report with what the forecast says of it.

    A series whose opening steps lie above the forecast gets a slow onset at its first step; a series
    that has no other fault becomes fail-slow by it. The lost time is then that against the forecast.
    """
    # Of a rate alone the seconds are not known, or are those of the clock, pauses included.
    seen = compare(series.step_time_s, expected) if series.unit_s == 1.0 else None
    if seen is None:
        return report
    if not seen.slower_from_start:
        return replace(report, notes=(*report.notes, seen.sentence()))
    usable = np.flatnonzero(np.isfinite(series.step_time_s) & (series.step_time_s > 0))
    first, told = int(usable[0]), int(usable[min(_LEAST_ROWS, len(usable) - 1)])
    after = seen.opening_ratio * seen.expected_p50_s
    event = Event(
        EventKind.SLOW_ONSET, int(series.step[first]), int(series.step[told]), seen.expected_p50_s,
        after, seen.opening_ratio - 1.0, index=first, note="slower than the forecast from the start",
    )  # fmt: skip
    fault = report.outcome not in (SeriesOutcome.HEALTHY, SeriesOutcome.FAIL_SLOW)
    lost = max(report.lost_s, seen.lost_s)
    usual = float(np.nansum(np.where(series.step_time_s > 0, series.step_time_s, 0.0)))
    return replace(
        report,
        outcome=report.outcome if fault else SeriesOutcome.FAIL_SLOW,
        reason=report.reason
        if fault
        else f"{seen.ratio:.2f}x slower than the forecast from the start",
        events=(event, *report.events),
        lost_s=lost,
        lost_share=lost / usual if usual > 0 else 0.0,
        notes=(*report.notes, seen.sentence()),
    )
