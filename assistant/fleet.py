"""Reads what the fleet view is made from: the failures of a span, which jobs ran again, all jobs of the site."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from rerail.assistant.presentation.fleet import FleetView, fleet_view
from rerail.assistant.presentation.fleet_site import SiteView, site_view
from rerail.assistant.since import since_iso
from rerail.errors import ConfigError
from rerail.knowledge_base.store.clock import from_iso, now_iso
from rerail.knowledge_base.store.engine import reading
from rerail.knowledge_base.store.incidents import count_healthy
from rerail.knowledge_base.store.opened import opened_store
from rerail.knowledge_base.store.span import SpanIncident, count_after, failures_between
from rerail.recovery.executor import RESTARTS
from rerail.recovery.site_policy import load_policy
from rerail.recovery.store.plans import restarts_since, verified_since
from rerail.settings import load_settings
from rerail.tools.fleet.runs import Run, read_runs


def fleet_since(text: str, jobs: Path | None = None) -> FleetView:
    """Return the fleet view from a time, or a span before now (7d, 12h), to now.

    Args:
        text: the time or span.
        jobs: the record of all jobs; the configured one otherwise.

    Raises:
        UsageError: `text` is no time.
        StoreError: The store cannot be read.
        EvidenceError: The record of jobs cannot be read.
        ConfigError: What the record needs is not installed.
    """
    since, until = since_iso(text), now_iso()
    began = from_iso(since).timestamp()
    with opened_store() as engine, reading(engine) as connection:
        found = failures_between(connection, since, until)
        again = verified_since(connection, began, RESTARTS)
        restarts = restarts_since(connection, began, RESTARTS)
        healthy = count_healthy(connection, since=since, until=until)
        later = count_after(connection, until)
    return fleet_view(
        found,
        running_again=again,
        since=since,
        until=until,
        healthy=healthy,
        later=later,
        restarts=restarts,
        site=_site(found, jobs, began, from_iso(until).timestamp()),
    )


def _site(
    found: Sequence[SpanIncident], jobs: Path | None, since: float, until: float
) -> SiteView | None:
    settings = load_settings()
    path = jobs or settings.jobs_file
    if path is None:
        return None
    runs = _runs(path.expanduser())
    roots = load_policy(settings.policy_file).roots
    try:
        return site_view(found, runs, roots, since=since, until=until)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the record of jobs needs {error.name}",
            subject="jobs_file",
            hint="pip install 'rerail[report]'",
        ) from None


def _runs(path: Path) -> tuple[Run, ...]:
    """Return the record; the page asks again and again, and a year of it takes seconds to read."""
    try:
        stat = path.stat()
    except OSError:
        return read_runs(path).runs
    return _read(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=1)
def _read(path: Path, changed_ns: int, size: int) -> tuple[Run, ...]:
    del changed_ns, size
    return read_runs(path).runs
