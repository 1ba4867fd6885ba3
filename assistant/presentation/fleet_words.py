"""The sentences of the fleet view, the same in the terminal and on the page."""

from __future__ import annotations

from rerail.assistant.postmortem.impact import in_words
from rerail.assistant.presentation.fleet import Durations, FleetView, GpuHours, NodeRow

_TYPES = 3

COUNT_IS_NO_PROOF = (
    "A count is no proof: a node in many jobs is in many failures. rerail healthcheck tests a node."
)


def fleet_sentences(view: FleetView) -> tuple[str, ...]:
    """Return what is to be said of the whole span, one sentence each."""
    told = [
        f"{_incidents(view.incidents)} from {minute_words(view.since)} to {minute_words(view.until)} UTC."
    ]
    if view.healthy:
        what = "diagnosis" if view.healthy == 1 else "diagnoses"
        told.append(f"{view.healthy} {what} found no failure.")
    if view.later:
        told.append(
            f"{_incidents(view.later)} with a time that is still to come: not counted; is a clock wrong?"
        )
    if not view.incidents:
        return tuple(told)
    if view.undated:
        told.append(
            f"{view.undated} of {view.incidents} have no time in their logs:"
            " they stand at the time of their diagnosis."
        )
    hours = view.gpu_hours
    told.append(
        f"GPU-hours lost: {gpu_hours_words(hours)}{_of(hours.known, hours.unknown)}"
        " (idle from the first fault to the end of the logs)."
    )
    told.append(
        f"Time to diagnosis: {_mean(view.time_to_diagnosis)}"
        " (from the job's end or stall, as it was reported, to the first verdict)."
    )
    told.append(
        f"Time to recovery: {_mean(view.time_to_recovery)}"
        " (from there until a restart by rerail was seen to make progress)."
    )
    return tuple(told)


def gpu_hours_words(hours: GpuHours) -> str:
    """Return the hours, or that they are not known."""
    if hours.hours is None:
        return "not known"
    return f"{hours.hours:,.{2 if hours.hours < 10 else 1}f}"


def unknown_words(hours: GpuHours) -> str:
    """Return of how many incidents the hours are not known, or nothing where all are or none is."""
    return f"and {hours.unknown} not known" if hours.hours is not None and hours.unknown else ""


def types_words(row: NodeRow) -> str:
    """Return the failure types of a node, the most frequent first, and how many more there are."""
    shown = ", ".join(row.failure_types[:_TYPES])
    more = len(row.failure_types) - _TYPES
    return f"{shown} and {more} more" if more > 0 else shown


def minute_words(time: str) -> str:
    """Return the day and minute of a time in UTC."""
    return f"{time[:10]} {time[11:16]}"


def _incidents(count: int) -> str:
    return "1 incident" if count == 1 else f"{count} incidents"


def _of(known: int, unknown: int) -> str:
    if not known:
        return ""
    return f", known for {known} of {known + unknown} incidents"


def _mean(durations: Durations) -> str:
    if durations.mean_s is None or durations.median_s is None:
        return "not known"
    return (
        f"mean {in_words(durations.mean_s)}, median {in_words(durations.median_s)}"
        f"{_of(durations.known, durations.unknown)}"
    )
