"""What failed on a site in a span of time, counted: one view that terminal, JSON and page lay out.

What a record does not tell is counted as not known and never as zero.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from rerail.assistant.presentation.fleet_site import Recoveries, SiteView, recoveries
from rerail.assistant.presentation.words import type_words
from rerail.knowledge_base.store.clock import from_iso
from rerail.knowledge_base.store.span import SpanIncident
from rerail.knowledge_base.taxonomy import category_titles, leaves
from rerail.recovery.store.plans import Restart

MOST_DAYS = 62
"""A longer span is counted by week."""
MOST_PERIODS = 270
"""Over more of them (five years of weeks) only those with incidents are rows."""
MOST_ROWS = 20
_LATEST = 3
_UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class GpuHours:
    """Idle GPU-hours from the first fault to the end of the logs; None where no record tells them."""

    hours: float | None
    known: int
    unknown: int


@dataclass(frozen=True, slots=True)
class Durations:
    """Durations in seconds, of the incidents for which the store knows them."""

    mean_s: float | None
    median_s: float | None
    known: int
    unknown: int


@dataclass(frozen=True, slots=True)
class CategoryRow:
    """One category of failures; its id is `unknown` where no cause was found."""

    id: str
    title: str
    incidents: int
    gpu_hours: GpuHours


@dataclass(frozen=True, slots=True)
class PeriodRow:
    """A day, or a week by its Monday (UTC): its incidents, and those of each category's id."""

    begins: str
    incidents: int
    by_category: dict[str, int]


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node that incidents were held against; `established` of them are proved by their evidence."""

    cluster: str
    node: str
    incidents: int
    established: int
    last: str
    failure_types: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RepeatRow:
    """One failure that was seen the same way several times; `latest` names its last incidents."""

    fingerprint: str
    failure_type: str
    words: str
    incidents: int
    jobs: int
    first: str
    last: str
    latest: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FleetView:
    """The counts of a span. Times are ISO 8601 in UTC.

    `undated` incidents have no time in their logs and count at that of their first diagnosis. `healthy`
    diagnoses found no failure. `later` failures carry times behind `until` and are in no other count.
    `nodes` and `repeats` are the first rows; `node_count` and `repeat_count` all. `site` is what the record of
    all jobs adds, None where there is no such record.
    """

    schema_version: int
    since: str
    until: str
    incidents: int
    undated: int
    healthy: int
    later: int
    gpu_hours: GpuHours
    time_to_diagnosis: Durations
    time_to_recovery: Durations
    period: str
    periods: tuple[PeriodRow, ...]
    categories: tuple[CategoryRow, ...]
    nodes: tuple[NodeRow, ...]
    node_count: int
    repeats: tuple[RepeatRow, ...]
    repeat_count: int
    recoveries: dict[str, Recoveries]
    site: SiteView | None


def fleet_view(
    found: Sequence[SpanIncident],
    *,
    running_again: Mapping[str, float],
    since: str,
    until: str,
    healthy: int = 0,
    later: int = 0,
    restarts: Sequence[Restart] = (),
    site: SiteView | None = None,
) -> FleetView:
    """Return the view of the failures between two times.

    Args:
        found: the failures.
        running_again: seconds since the epoch at which an incident's job was seen to run again.
        since: ISO 8601 in UTC.
        until: ISO 8601 in UTC.
        healthy: diagnoses of the span that found no failure.
        later: failures with a time behind `until`.
        restarts: what recovery began.
        site: what the record of all jobs adds.
    """
    nodes, repeats = _nodes(found), _repeats(found)
    period, periods = _periods(found, since, until)
    return FleetView(
        schema_version=1,
        since=since,
        until=until,
        incidents=len(found),
        undated=sum(one.row.occurred_at is None for one in found),
        healthy=healthy,
        later=later,
        gpu_hours=_gpu_hours(found),
        time_to_diagnosis=_durations([_to_diagnosis(one) for one in found]),
        time_to_recovery=_durations(
            [_since_end(one, running_again.get(one.row.id)) for one in found]
        ),
        period=period,
        periods=periods,
        categories=_categories(found),
        nodes=tuple(nodes[:MOST_ROWS]),
        node_count=len(nodes),
        repeats=tuple(repeats[:MOST_ROWS]),
        repeat_count=len(repeats),
        recoveries=recoveries(restarts, found, from_iso(until).timestamp()),
        site=site,
    )


def _category(one: SpanIncident) -> str:
    leaf = leaves().get(one.row.true_type or "")
    return leaf.category if leaf else _UNKNOWN


def _gpu_hours(found: Iterable[SpanIncident]) -> GpuHours:
    told = [one.idle_gpu_hours for one in found]
    known = [hours for hours in told if hours is not None]
    return GpuHours(round(sum(known), 2) if known else None, len(known), len(told) - len(known))


def _to_diagnosis(one: SpanIncident) -> float | None:
    return _since_end(one, from_iso(one.diagnosed_at).timestamp())


def _since_end(one: SpanIncident, moment: float | None) -> float | None:
    """Return the seconds from the report of the job's end or stall to a later moment."""
    if one.reported_at is None or moment is None:
        return None
    seconds = moment - from_iso(one.reported_at).timestamp()
    # A log that somebody had diagnosed before the event came says nothing of how long it took.
    return seconds if seconds >= 0 else None


def _durations(told: Sequence[float | None]) -> Durations:
    known = [seconds for seconds in told if seconds is not None]
    if not known:
        return Durations(None, None, 0, len(told))
    return Durations(
        round(statistics.fmean(known), 1),
        round(statistics.median(known), 1),
        len(known),
        len(told) - len(known),
    )


def _categories(found: Sequence[SpanIncident]) -> tuple[CategoryRow, ...]:
    groups: dict[str, list[SpanIncident]] = defaultdict(list)
    for one in found:
        groups[_category(one)].append(one)
    titles = {**category_titles(), _UNKNOWN: "Cause not known"}
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    return tuple(CategoryRow(id, titles[id], len(ones), _gpu_hours(ones)) for id, ones in ordered)


def _periods(
    found: Sequence[SpanIncident], since: str, until: str
) -> tuple[str, tuple[PeriodRow, ...]]:
    """Return whether days or weeks are counted, and each with its counts, also those without any."""
    if not found:
        return "day", ()
    first, last = _day(since), _day(until)
    if (last - first).days >= MOST_DAYS:  # years without a record are no rows
        first = _day(found[0].row.time)
    weeks = (last - first).days >= MOST_DAYS
    step = timedelta(days=7 if weeks else 1)
    begin = _monday(first) if weeks else first
    counts: dict[date, Counter[str]] = defaultdict(Counter)
    # One log with a clock of 1970 must not make thousands of empty rows.
    for number in range((last - begin) // step + 1 if last - begin < MOST_PERIODS * step else 0):
        counts[begin + number * step] = Counter()
    for one in found:
        day = _day(one.row.time)
        counts[_monday(day) if weeks else day][_category(one)] += 1
    return "week" if weeks else "day", tuple(
        PeriodRow(day.isoformat(), count.total(), dict(count.most_common()))
        for day, count in sorted(counts.items())
    )


def _day(time: str) -> date:
    return from_iso(time).date()


def _monday(day: date) -> date:
    return day - timedelta(days=day.weekday())


def _nodes(found: Sequence[SpanIncident]) -> list[NodeRow]:
    groups: dict[tuple[str, str], list[SpanIncident]] = defaultdict(list)
    for one in found:
        for node in dict.fromkeys(one.nodes):
            groups[one.row.cluster, node].append(one)
    rows = [
        NodeRow(
            cluster=cluster,
            node=node,
            incidents=len(ones),
            established=sum(_is_established(one) for one in ones),
            last=max(one.row.time for one in ones),
            failure_types=tuple(
                kind for kind, _ in Counter(one.row.true_type or _UNKNOWN for one in ones).most_common()
            ),
        )
        for (cluster, node), ones in groups.items()
    ]  # fmt: skip
    return sorted(rows, key=lambda row: (-row.incidents, -row.established, row.cluster, row.node))


def _is_established(one: SpanIncident) -> bool:
    """Tell whether the evidence proves the cause that is on record: a corrected one has another."""
    return one.row.status == "established" and one.row.true_type == one.row.failure_type


def _repeats(found: Sequence[SpanIncident]) -> list[RepeatRow]:
    """Return failures seen the same way more than once; two unknown causes need not be the same."""
    groups: dict[tuple[str, str], list[SpanIncident]] = defaultdict(list)
    for one in found:
        if one.row.true_type is not None:
            groups[one.row.fingerprint, one.row.true_type].append(one)
    rows = [
        RepeatRow(
            fingerprint=fingerprint,
            failure_type=kind,
            words=type_words(kind),
            incidents=len(ones),
            jobs=len({(one.row.cluster, one.row.job) for one in ones if one.row.job}),
            first=ones[0].row.time,
            last=ones[-1].row.time,
            latest=tuple(one.row.id for one in reversed(ones[-_LATEST:])),
        )
        for (fingerprint, kind), ones in groups.items()
        if len(ones) > 1
    ]
    return sorted(rows, key=lambda row: (-row.incidents, row.fingerprint, row.failure_type))
