"""The sentences of the fleet view, the same in the terminal and on the page."""

from __future__ import annotations

from rerail.assistant.postmortem.impact import in_words
from rerail.assistant.presentation.fleet import Durations, FleetView, GpuHours, NodeRow
from rerail.assistant.presentation.fleet_site import SiteView
from rerail.assistant.presentation.words import type_words

_TYPES = 3

COUNT_IS_NO_PROOF = (
    "A count is no proof: a node in many jobs is in many failures. Name the site's record of jobs (--jobs) to tell"
    " chance from a bad node; rerail healthcheck tests one."
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
    told += _recoveries(view)
    if view.site is not None:
        told += _site(view.site)
    return tuple(told)


def _recoveries(view: FleetView) -> list[str]:
    told = []
    for who, words in (("automatic", "by itself"), ("approved", "after an approval")):
        one = view.recoveries[who]
        if one.begun:
            told.append(
                f"Restarts by rerail {words}: {one.begun}; {one.held} held for a day,"
                f" {one.failed_again} failed again, {one.did_not_work} did not work, {one.too_new} not a day old."
            )
    return told


def _site(site: SiteView) -> list[str]:
    sums = site.efficiency
    told = [
        f"All jobs: {site.attempts:,} attempts, {sums.allocated_gpu_hours:,.0f} GPU-hours;"
        f" {site.undiagnosed:,} failed without a diagnosis."
    ]
    if sums.ettr is not None and sums.goodput is not None:
        bound = (
            ""
            if sums.known == sums.failures
            else f"; upper bounds: what was lost is known for {sums.known} of {sums.failures} failures"
        )
        told.append(
            f"Goodput: {sums.goodput:.2%} of the allocated GPU-hours moved training forward; ETTR"
            f" {sums.ettr:.2%} of the time from first start to last end{bound}."
        )
    bad = [one.name for part in (site.nodes, site.switches, site.users) for one in part if one.stands_out]  # fmt: skip
    compared = site.compared
    told.append(
        f"Not explained by chance among {_named(compared[0], 'node', 'nodes')},"
        f" {_named(compared[1], 'switch', 'switches')} and {_named(compared[2], 'user', 'users')}:"
        f" {', '.join(bad) if bad else 'none'}."
    )
    return told


def _named(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def gpu_hours_words(hours: GpuHours) -> str:
    """Return the hours, or that they are not known."""
    if hours.hours is None:
        return "not known"
    if 0 < hours.hours < 0.005:
        return "below 0.01"
    return f"{hours.hours:,.{2 if hours.hours < 10 else 1}f}"


def unknown_words(hours: GpuHours) -> str:
    """Return of how many incidents the hours are not known, or nothing where all are or none is."""
    return f"and {hours.unknown} not known" if hours.hours is not None and hours.unknown else ""


def types_words(row: NodeRow) -> str:
    """Return the failure types of a node, the most frequent first, and how many more there are."""
    shown = "; ".join(type_words(one) for one in row.failure_types[:_TYPES])
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
