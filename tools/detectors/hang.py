"""No progress: how long a job may be silent in each phase before it is called hung.

The limits are multiples of the run's own typical step, with a floor per phase, because start-up,
compilation, checkpoints and evaluation print nothing for long and are healthy.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from rerail.domain.series import StepSeries
from rerail.tools.detectors.events import Event, EventKind, Stage


class Phase(StrEnum):
    """What the job was doing when it was last heard of."""

    START_UP = "start_up"
    COMPILE = "compile"
    TRAIN = "train"
    CHECKPOINT = "checkpoint"
    EVALUATION = "evaluation"
    RESTART = "restart"


@dataclass(frozen=True, slots=True)
class Limit:
    """How many typical steps and at least how many seconds a phase may be silent."""

    steps: float
    floor_s: float


LIMITS: dict[Phase, Limit] = {
    Phase.START_UP: Limit(0, 1800),
    Phase.COMPILE: Limit(50, 1800),
    Phase.TRAIN: Limit(10, 120),
    Phase.CHECKPOINT: Limit(30, 1200),
    Phase.EVALUATION: Limit(60, 1800),
    Phase.RESTART: Limit(20, 1800),
}


def silence_limit(
    phase: Phase, row_s: float, usual_gap_s: float = 0.0, limits: dict[Phase, Limit] | None = None
) -> float:
    """Return the seconds of silence that are still healthy.

    `row_s` is the typical time between two log rows, `usual_gap_s` the longest gap that this run
    has already come back from (its own checkpoints and evaluations).
    """
    limit = (limits or LIMITS)[phase]
    return max(limit.floor_s, limit.steps * row_s, 2.0 * usual_gap_s)


def find_stalls(series: StepSeries) -> list[Event]:
    """Return gaps in the clock of a series that it came back from: 20 rows and 2 minutes at least.

    Gaps that recur (three or more of a similar length) are pauses of the job, not stalls.
    """
    time = series.time
    if time is None or len(series) < 4:
        return []
    gap = np.diff(np.where(np.isfinite(time), time, np.nan))
    known = np.isfinite(gap) & (gap >= 0)
    if known.sum() < 3:
        return []
    usual = float(np.median(gap[known]))
    limit = silence_limit(Phase.TRAIN, 2 * usual)
    long = known & (gap > limit)
    events = []
    for row in np.flatnonzero(long):
        alike = np.count_nonzero(long & (gap > 0.5 * gap[row]) & (gap < 2 * gap[row]))
        fallen = series.step[row + 1] < series.step[row]
        if alike >= 3 or fallen:
            continue
        number = int(series.step[row + 1])
        events.append(
            Event(
                EventKind.STALL,
                number,
                number,
                usual,
                float(gap[row]),
                float(gap[row] / usual - 1) if usual > 0 else float("nan"),
                Stage.CONFIRMED,
                int(row + 1),
                f"{gap[row]:.0f} s without a step, then progress",
            )
        )
    return events


def find_hang(
    series: StepSeries, seen_until: float | None, phase: Phase = Phase.TRAIN
) -> Event | None:
    """Return a hang when nothing was reported between the last row and `seen_until`.

    `seen_until` (seconds since the epoch) is when the job was last known to be alive; `phase` is
    what it was doing. None when the clock is unknown or the silence is within its limit.
    """
    if seen_until is None or series.time is None or len(series) == 0:
        return None
    time = series.time[np.isfinite(series.time)]
    if len(time) == 0:
        return None
    gap = np.diff(time)
    gap = gap[gap > 0]
    row_s = float(np.median(gap)) if len(gap) else _last_known(series)
    usual_gap = float(gap.max()) if len(gap) >= 3 else 0.0
    silence = seen_until - float(time[-1])
    limit = silence_limit(phase, row_s, usual_gap)
    if silence <= limit:
        return None
    number = int(series.step[-1])
    return Event(
        EventKind.HANG,
        number,
        number,
        row_s,
        silence,
        silence / row_s - 1 if row_s > 0 else float("nan"),
        Stage.CONFIRMED,
        len(series) - 1,
        f"no step for {silence:.0f} s, limit {limit:.0f} s in phase {phase}",
    )


def _last_known(series: StepSeries) -> float:
    known = series.step_time_s[np.isfinite(series.step_time_s)]
    return float(known[-1]) if len(known) else 0.0
