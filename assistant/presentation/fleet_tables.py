"""What the site's record of jobs adds, as tables of words: laid out alike by terminal, page and HTML file."""

from __future__ import annotations

from dataclasses import dataclass

from rerail.assistant.postmortem.impact import in_words
from rerail.assistant.presentation.fleet import FleetView
from rerail.assistant.presentation.fleet_site import SiteView
from rerail.tools.fleet.outliers import Counted
from rerail.tools.fleet.reliability import DOUBTFUL, Interval

_LEAST_SHOWN = 0.0001


@dataclass(frozen=True, slots=True)
class TableView:
    """A table: its columns, `left` those of them that hold words, and a sentence below it."""

    id: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: tuple[str, ...] = ()
    note: str = ""


def site_tables(view: FleetView) -> tuple[TableView, ...]:
    """Return the tables of a site whose jobs are on record; none where they are not."""
    if view.site is None:
        return ()
    made = (_standing_out(view.site), _sizes(view.site), _categories(view, view.site))
    return tuple(one for one in made if one.rows)


def chance_words(one: Counted) -> str:
    """Return how often chance makes the worst of so many look like that."""
    if one.stands_out:
        shown = f"{max(one.chance, _LEAST_SHOWN):.4f}"
        return f"no ({'<' if one.chance < _LEAST_SHOWN else ''}{shown})"
    return f"yes ({one.chance:.2f})" if one.chance < 1 else "yes"


def _standing_out(site: SiteView) -> TableView:
    rows = [
        (kind, one.name, str(one.failures), f"{one.expected:.1f}", chance_words(one))
        for kind, part in (("node", site.nodes), ("switch", site.switches), ("user", site.users))
        for number, one in enumerate(part)
        if one.stands_out or number < 3
    ]
    return TableView(
        "chance",
        "What stands out, and what chance explains",
        ("what", "name", "failures", "expected", "by chance?"),
        tuple(rows),
        ("what", "name", "by chance?"),
        "Each is held against all of its kind: the worst of many healthy ones is no bad one. Nodes and switches by their"
        " hours of work, a job that fails on one again and again once; users by their jobs, failures of machines left out.",
    )


def _sizes(site: SiteView) -> TableView:
    told = site.reliability
    rows = [
        (
            f"{one.least:,}-{one.most:,}",
            f"{one.attempts:,}",
            f"{one.hours:,.0f}",
            str(one.failures),
            *_interval(one.mttf),
        )
        for one in told.sizes
    ]
    rows += [
        (f"{gpus:,}", "projected", "", "", *_interval(interval))
        for gpus, interval in told.projection
    ]
    note = (
        "Mean time until the site lets a job of that size down, in hours, with its 95 % interval."
    )
    if told.one_rate is not None and told.one_rate < DOUBTFUL:
        note += f" The sizes do not share one rate (p = {told.one_rate:.4f}): do not trust the projection."
    return TableView(
        "sizes",
        "Failures against job size",
        ("GPUs", "attempts", "hours", "failures", "MTTF (h)", "95 % interval"),
        tuple(rows),
        ("95 % interval",),
        note,
    )


def _interval(one: Interval) -> tuple[str, str]:
    high = "no bound" if one.high is None else _hours(one.high)
    return ("-" if one.hours is None else _hours(one.hours)), f"{_hours(one.low or 0.0)} to {high}"


def _hours(hours: float) -> str:
    return f"{hours:,.{0 if hours >= 100 else 1 if hours >= 1 else 2}f}"


def _categories(view: FleetView, site: SiteView) -> TableView:
    rows = []
    for kind in view.categories:
        one = site.categories.get(kind.id)
        if one is None:
            continue
        rows.append(
            (
                kind.title,
                "not known" if one.gpu_share is None else f"{one.gpu_share:.3%}",
                _time(one.to_failure_s),
                _time(one.to_running_again_s),
            )
        )
    return TableView(
        "times",
        "By category, beside all jobs",
        ("category", "GPU time lost", "to failure", "to running again"),
        tuple(rows),
        ("category",),
        "Idle time as a share of the allocated GPU time; medians from the start of an attempt to its end, and from there to"
        " the start of the next.",
    )


def _time(seconds: float | None) -> str:
    return "not known" if seconds is None else in_words(seconds)
