"""What a site's record of jobs adds to its failures: what stands out, failures against size, goodput."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rerail.domain.diagnosis import Layer
from rerail.domain.plan import ActionState
from rerail.knowledge_base.store.clock import from_iso
from rerail.knowledge_base.store.span import SpanIncident
from rerail.knowledge_base.taxonomy import leaves
from rerail.recovery.store.plans import Restart
from rerail.tools.fleet.efficiency import Efficiency, Loss, efficiency
from rerail.tools.fleet.outliers import Counted, by_job, by_time
from rerail.tools.fleet.reliability import Reliability, reliability
from rerail.tools.fleet.runs import Run

HELD_S = 86_400.0
"""A restart has held when the job has not failed again within a day."""
MOST_BLAMED = 4
"""A failure held against more nodes says nothing of any single one."""
MOST_ROWS = 20
_BAD_ENDS = ("FAILED", "OUT_OF_MEMORY")


@dataclass(frozen=True, slots=True)
class Recoveries:
    """Restarts that rerail began, each in one count; `too_new` works since less than a day."""

    begun: int
    held: int
    failed_again: int
    did_not_work: int
    too_new: int


@dataclass(frozen=True, slots=True)
class CategoryTimes:
    """One category of failures: medians in seconds, and its share of the allocated GPU time."""

    to_failure_s: float | None
    to_running_again_s: float | None
    gpu_share: float | None


@dataclass(frozen=True, slots=True)
class SiteView:
    """What failures mean beside all the work of the site.

    `attempts` are those of the record in the span; `undiagnosed` failed without an incident. `nodes`,
    `switches` and `users` are the first rows, what stands out first; `compared` says how many were.
    """

    attempts: int
    undiagnosed: int
    nodes: tuple[Counted, ...]
    switches: tuple[Counted, ...]
    users: tuple[Counted, ...]
    compared: tuple[int, int, int]
    reliability: Reliability
    efficiency: Efficiency
    categories: dict[str, CategoryTimes]


def recoveries(
    begun: Sequence[Restart], found: Sequence[SpanIncident], now: float
) -> dict[str, Recoveries]:
    """Return how restarts went: `automatic` ones, and those that a person `approved`."""
    failures: dict[tuple[str, str], list[tuple[int, float]]] = defaultdict(list)
    for one in found:
        if one.row.job is not None:
            ended = from_iso(one.reported_at or one.row.time).timestamp()
            failures[one.row.cluster, one.row.job].append((one.row.attempt or 0, ended))
    counts: dict[str, Counter[str]] = {"automatic": Counter(), "approved": Counter()}
    for restart in begun:
        how = _how(restart, failures[restart.cluster, restart.job], now)
        counts["automatic" if restart.automatic else "approved"][how] += 1
    return {
        who: Recoveries(
            count.total(),
            *(count[how] for how in ("held", "failed_again", "did_not_work", "too_new")),
        )
        for who, count in counts.items()
    }


def _how(restart: Restart, failures: Sequence[tuple[int, float]], now: float) -> str:
    if restart.state is not ActionState.VERIFIED:
        under_way = restart.state in (ActionState.EXECUTING, ActionState.VERIFYING)
        return "too_new" if under_way else "did_not_work"
    until = restart.changed_at + HELD_S
    if any(attempt > restart.attempt and at <= until for attempt, at in failures):
        return "failed_again"
    return "held" if now >= until else "too_new"


def site_view(
    found: Sequence[SpanIncident],
    runs: Sequence[Run],
    roots: Mapping[str, Sequence[str]],
    *,
    since: float,
    until: float,
) -> SiteView:
    """Return what the record of jobs adds; `roots` are switches and the nodes under each.

    Attempts count with the part of them that lies between the two times, in seconds since the epoch.
    """
    inside = [
        one
        if since <= one.start and one.end <= until
        else replace(one, start=max(one.start, since), end=min(one.end, until))
        for one in runs
        if one.end > since and one.start < until
    ]
    matched = _matched(found, inside)
    machine = {key for key, one in matched.items() if _layer(one) is Layer.INFRASTRUCTURE}
    machine |= {(one.job, one.attempt) for one in inside if one.state == "NODE_FAIL"}
    nodes = _nodes(found, inside)
    switches = _switches(found, inside, roots, {one.name for one in nodes if one.stands_out})
    users = _users(inside, machine)
    sums = efficiency(inside, _losses(inside, matched))
    return SiteView(
        attempts=len(inside),
        undiagnosed=sum(
            one.state in _BAD_ENDS and (one.job, one.attempt) not in matched for one in inside
        ),
        nodes=tuple(nodes[:MOST_ROWS]),
        switches=tuple(switches[:MOST_ROWS]),
        users=tuple(users[:MOST_ROWS]),
        compared=(
            len({node for one in inside for node in one.nodes}),
            len(roots),
            len({one.user for one in inside if one.user}),
        ),
        reliability=reliability(inside, machine),
        efficiency=sums,
        categories=_categories(found, inside, matched, sums.allocated_gpu_hours),
    )


def _layer(one: SpanIncident) -> Layer | None:
    leaf = leaves().get(one.row.true_type or "")
    return leaf.layer if leaf else None


def _matched(
    found: Sequence[SpanIncident], runs: Sequence[Run]
) -> dict[tuple[str, int], SpanIncident]:
    """Return the incident of each attempt that has one: by number, else by the end that is nearest."""
    attempts: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        attempts[run.job].append(run)
    matched: dict[tuple[str, int], SpanIncident] = {}
    for one in found:
        mine = attempts.get(one.row.job or "", ())
        if not mine:
            continue
        at = from_iso(one.reported_at or one.row.time).timestamp()
        exact = next((r for r in mine if r.attempt == one.row.attempt), None)
        run = exact or min(mine, key=lambda r: abs(r.end - at))
        matched.setdefault((run.job, run.attempt), one)
    return matched


def _nodes(found: Sequence[SpanIncident], runs: Sequence[Run]) -> list[Counted]:
    """Judge nodes by their hours of work; a job that fails on one again and again counts once."""
    hours: dict[str, float] = defaultdict(float)
    for run in runs:
        ran = run.hours
        for node in run.nodes:
            hours[node] += ran
    seen = {
        (node, one.row.job or one.row.id)
        for one in found
        if len(one.nodes) <= MOST_BLAMED and _layer(one) is Layer.INFRASTRUCTURE
        for node in one.nodes
    }
    return by_time(Counter(node for node, _ in seen), hours)


def _switches(
    found: Sequence[SpanIncident],
    runs: Sequence[Run],
    roots: Mapping[str, Sequence[str]],
    bad: set[str],
) -> list[Counted]:
    """Judge switches by the hours of the nodes under them; what one bad node explains is left out."""
    above = {node: name for name, below in roots.items() for node in below}
    hours: dict[str, float] = defaultdict(float)
    for run in runs:
        for node in run.nodes:
            if node in above and node not in bad:
                hours[above[node]] += run.hours
    seen = {
        (above[node], one.row.job or one.row.id)
        for one in found
        if _layer(one) is Layer.INFRASTRUCTURE
        for node in one.nodes
        if node in above and node not in bad
    }
    return by_time(Counter(name for name, _ in seen), hours)


def _users(runs: Sequence[Run], machine: set[tuple[str, int]]) -> list[Counted]:
    """Judge users by their jobs: how many failed, and not by the machines."""
    jobs = {(one.user, one.job) for one in runs if one.user}
    failed = {
        (one.user, one.job)
        for one in runs
        if one.user and one.state in _BAD_ENDS and (one.job, one.attempt) not in machine
    }
    return by_job(Counter(user for user, _ in failed), Counter(user for user, _ in jobs))


def _losses(
    runs: Sequence[Run], matched: Mapping[tuple[str, int], SpanIncident]
) -> dict[tuple[str, int], Loss]:
    """Return what each failed attempt lost, as far as its logs tell."""
    losses = {}
    for run in runs:
        one = matched.get((run.job, run.attempt))
        if one is None:
            continue
        idle_s = again_s = None
        if one.idle_gpu_hours is not None and run.gpus:
            idle_s = one.idle_gpu_hours * 3600.0 / run.gpus
        if one.lost_steps is not None and one.made_steps:
            again_s = one.lost_steps * (run.end - run.start - (idle_s or 0.0)) / one.made_steps
        losses[run.job, run.attempt] = Loss(idle_s, again_s)
    return losses


def _categories(
    found: Sequence[SpanIncident],
    runs: Sequence[Run],
    matched: Mapping[tuple[str, int], SpanIncident],
    allocated: float,
) -> dict[str, CategoryTimes]:
    starts = {(one.job, one.attempt): one.start for one in runs}
    to_failure: dict[str, list[float]] = defaultdict(list)
    again: dict[str, list[float]] = defaultdict(list)
    lost: dict[str, float] = defaultdict(float)
    for one in found:
        if one.idle_gpu_hours is not None:
            lost[_category(one)] += one.idle_gpu_hours
    for run in runs:
        incident = matched.get((run.job, run.attempt))
        if incident is None:
            continue
        to_failure[_category(incident)].append(run.end - run.start)
        following = starts.get((run.job, run.attempt + 1))
        if following is not None:
            again[_category(incident)].append(following - run.end)
    return {
        name: CategoryTimes(
            statistics.median(to_failure[name]) if to_failure[name] else None,
            statistics.median(again[name]) if again[name] else None,
            lost[name] / allocated if allocated and name in lost else None,
        )
        for name in sorted({_category(one) for one in found})
    }


def _category(one: SpanIncident) -> str:
    leaf = leaves().get(one.row.true_type or "")
    return leaf.category if leaf else "unknown"
