"""What an incident cost, computed from the record; nothing here is written by a model."""

from __future__ import annotations

import re
import statistics
from dataclasses import dataclass

from rerail.domain.incident import Incident
from rerail.knowledge_base.store.clock import from_iso
from rerail.knowledge_base.taxonomy import has

_GPU = re.compile(r"(?i)cuda|nccl|rccl|\bgpus?\b|\bxid\b|nvidia|nvlink|\bhip\b|rocm|\bhbm\b")


@dataclass(frozen=True, slots=True)
class Impact:
    """Cost of one incident; None where the record does not tell.

    `idle_gpu_hours` passed between the first fault and the end of the logs; `redo_gpu_hours` is the
    time to train the lost steps again; `unnoticed_s` from the first fault to the first line of
    another rank or the launcher that told of it; `to_the_end_s` to the last line with a time.
    `device` is rank where nothing names a GPU: then each hour is one of a rank.
    `expected_step_s` is the forecast's step, where one was given, and
    `slower_s` and `slower_gpu_hours` what the steps took more than it. `ran_on` says that the job was
    slow and never stood still, so that no hour was idle.
    """

    gpus: int | None
    idle_gpu_hours: float | None
    lost_steps: int | None
    step_time_s: float | None
    redo_gpu_hours: float | None
    unnoticed_s: float | None
    to_the_end_s: float | None = None
    jobs: int = 1
    device: str = "GPU"
    expected_step_s: float | None = None
    slower_s: float | None = None
    slower_gpu_hours: float | None = None
    ran_on: bool = False

    @property
    def gpu_hours(self) -> float | None:
        """GPU hours that were idle, are redone, or went to steps slower than the forecast, together."""
        parts = (self.idle_gpu_hours, self.redo_gpu_hours, self.slower_gpu_hours)
        known = [v for v in parts if v is not None]
        return round(sum(known), 2) if known else None


def impact_of(incident: Incident) -> Impact:
    """Return the cost of an incident."""
    diagnosis = incident.diagnosis
    snapshot = incident.snapshot
    gpus = snapshot.allocation.world_size or len(snapshot.ranks) or None
    step = next((s for s in snapshot.series if s.name == "step_time_s"), None)
    times = [v for v in step.value if v is not None and v > 0] if step is not None else []
    step_time = statistics.median(times) if times else None
    redo = None
    if gpus and step_time is not None and diagnosis.cost.lost_steps is not None:
        redo = round(diagnosis.cost.lost_steps * step_time * gpus / 3600.0, 2)
    to_the_end = _to_the_end_s(incident)
    forecast = diagnosis.forecast
    ran_on = has(diagnosis.failure_type, "slow") and not diagnosis.consequences
    # A record of before may count a slow job's hours as idle.
    idle = None if ran_on else diagnosis.cost.idle_gpu_hours
    return Impact(
        gpus=gpus,
        idle_gpu_hours=idle,
        to_the_end_s=to_the_end,
        lost_steps=diagnosis.cost.lost_steps,
        step_time_s=step_time,
        redo_gpu_hours=redo,
        unnoticed_s=_unnoticed_s(incident),
        device="GPU" if _names_gpu(incident) else "rank",
        expected_step_s=forecast.expected_p50_s if forecast is not None else None,
        slower_s=forecast.lost_s if forecast is not None else None,
        slower_gpu_hours=round(forecast.lost_s * gpus / 3600.0, 2)
        if forecast is not None and forecast.slower and gpus
        else None,
        ran_on=ran_on,
    )


def _names_gpu(incident: Incident) -> bool:
    snapshot = incident.snapshot
    if incident.diagnosis.suspects.gpus or any(fact.gpu is not None for fact in snapshot.ranks):
        return True
    lines = [e.text for e in incident.diagnosis.evidence] + [x.text for x in snapshot.lines]
    lines += [one.text for one in snapshot.templates] + list(snapshot.versions)
    return any(_GPU.search(text) for text in lines)


def _to_the_end_s(incident: Incident) -> float | None:
    if incident.occurred_at is None:
        return None
    times = [e.time for e in incident.diagnosis.evidence] + [
        x.time for x in incident.snapshot.lines
    ]
    known = [time for time in times if time is not None]
    if not known:
        return None
    seconds = (from_iso(max(known)) - from_iso(incident.occurred_at)).total_seconds()
    return seconds if seconds > 0 else None


def _unnoticed_s(incident: Incident) -> float | None:
    if incident.occurred_at is None:
        return None
    began = from_iso(incident.occurred_at)
    first = incident.diagnosis.first_fault
    guilty = first.rank if first is not None else None
    later = [
        (from_iso(e.time) - began).total_seconds()
        for e in incident.diagnosis.evidence
        if e.time is not None
        and (e.role in ("cascade", "teardown") or (e.rank is not None and e.rank != guilty))
    ]
    known = [seconds for seconds in later if seconds > 0]
    return min(known) if known else None


def in_words(seconds: float) -> str:
    """Return a duration as people say it."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 120:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours >= 72:
        days, hours = divmod(hours, 24)
        return f"{days} d {hours} h" if hours else f"{days} d"
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"
