"""What a detector says: one typed event per change, and one report per series."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rerail.tools.detectors.against_runs import Check


class EventKind(StrEnum):
    """The kinds of change; `speed_up` and `rebaseline` are no faults."""

    SLOW_ONSET = "slow_onset"
    SLOW_RELIEF = "slow_relief"
    CREEP = "creep"
    SPEED_UP = "speed_up"
    STALL = "stall"
    HANG = "hang"
    LOSS_SPIKE = "loss_spike"
    LOSS_RECOVERY = "loss_recovery"
    LOSS_DIVERGENCE = "loss_divergence"
    LOSS_FROZEN = "loss_frozen"
    GRAD_NORM_SPIKE = "grad_norm_spike"
    NAN = "nan"
    SCALE_COLLAPSE = "scale_collapse"
    THROUGHPUT_DECLINE = "throughput_decline"


class Stage(StrEnum):
    """How far an event has been verified.

    A slow phase is `suspect` at its first alarm and `confirmed` once ten steps of it were seen.
    A phase that ends before is `brief`: real, priced, but no fault of the run.
    """

    SUSPECT = "suspect"
    CONFIRMED = "confirmed"
    BRIEF = "brief"


class SeriesOutcome(StrEnum):
    """The verdict on one series; the first that holds, from top to bottom."""

    NAN = "nan"
    HANG = "hang"
    LOSS_DIVERGENCE = "loss_divergence"
    FAIL_SLOW = "fail_slow"
    WORSE_THAN_BASELINE = "worse_than_baseline"
    HEALTHY = "healthy"
    INSUFFICIENT = "insufficient"


@dataclass(frozen=True, slots=True)
class Event:
    """One change in one series.

    `step` is where the change began, `detected_at_step` where the detector could first say so.
    `before` and `after` are levels in the unit of the series, `change` is after / before - 1 (for
    a non-finite loss it is NaN). `index` is the row of `step` in the series, or -1.
    """

    kind: EventKind
    step: int
    detected_at_step: int
    before: float
    after: float
    change: float
    stage: Stage = Stage.CONFIRMED
    index: int = -1
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the event as plain JSON values; non-finite numbers become null."""
        row = asdict(self)
        row["kind"], row["stage"] = str(self.kind), str(self.stage)
        for key in ("before", "after", "change"):
            number = row[key]
            row[key] = number if number == number and abs(number) != float("inf") else None
        return row


@dataclass(frozen=True, slots=True)
class Episode:
    """One slow phase: rows `first` to `last` (exclusive), its levels in seconds and its price."""

    first: int
    last: int
    first_step: int
    last_step: int
    before_s: float
    worst_s: float
    lost_s: float
    stage: Stage
    ongoing: bool


@dataclass(frozen=True, slots=True)
class SeriesReport:
    """Everything `detect` found in one series.

    `lost_s` is the time above the healthy level inside slow phases, brief ones included, and
    `lost_share` its share of all step time.
    `baseline` is what a comparison with good runs found, None without one.
    `baseline_s` and `noise` (relative standard deviation) describe the healthy steps, NaN if none.
    """

    name: str
    rank: int | None
    outcome: SeriesOutcome
    events: tuple[Event, ...] = ()
    episodes: tuple[Episode, ...] = ()
    lost_s: float = 0.0
    lost_share: float = 0.0
    n_steps: int = 0
    baseline_s: float = float("nan")
    noise: float = float("nan")
    reason: str = ""
    notes: tuple[str, ...] = field(default=())
    baseline: tuple[Check, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the report in the shape of contracts, `rerail detect --json`, one series."""
        baseline = self.baseline_s if self.baseline_s == self.baseline_s else None
        noise = self.noise if self.noise == self.noise else None
        row = {
            "name": self.name,
            "rank": self.rank,
            "outcome": str(self.outcome),
            "reason": self.reason,
            "events": [event.to_json() for event in self.events],
            "episodes": [{**asdict(item), "stage": str(item.stage)} for item in self.episodes],
            "lost_s": self.lost_s,
            "lost_share": self.lost_share,
            "n_steps": self.n_steps,
            "baseline_s": baseline,
            "noise": noise,
            "notes": list(self.notes),
        }
        if self.baseline is not None:
            row["baseline"] = [check.to_json() for check in self.baseline]
        return row
