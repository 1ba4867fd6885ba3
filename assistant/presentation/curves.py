"""The curves of an incident: what the record holds, and steps per second where the job printed no throughput."""

from __future__ import annotations

from rerail.domain.incident import Incident, SeriesSnapshot


def with_rate(incident: Incident) -> Incident:
    """Return the incident with `steps_per_s` beside its step times, where no throughput was printed."""
    series = incident.snapshot.series
    names = {one.name for one in series}
    timed = next((one for one in series if one.name == "step_time_s"), None)
    if timed is None or "throughput" in names:
        return incident
    rate = SeriesSnapshot(
        name="steps_per_s",
        step=timed.step,
        value=tuple(1.0 / one if one else None for one in timed.value),
        rank=timed.rank,
        time=timed.time,
    )
    snapshot = incident.snapshot.model_copy(update={"series": (*series, rate)})
    return incident.model_copy(update={"snapshot": snapshot})
