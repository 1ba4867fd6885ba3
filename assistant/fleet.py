"""Reads what the fleet view is made from: the failures of a span, and which jobs ran again."""

from __future__ import annotations

from rerail.assistant.presentation.fleet import FleetView, fleet_view
from rerail.assistant.since import since_iso
from rerail.knowledge_base.store.clock import from_iso, now_iso
from rerail.knowledge_base.store.engine import reading
from rerail.knowledge_base.store.incidents import count_healthy
from rerail.knowledge_base.store.opened import opened_store
from rerail.knowledge_base.store.span import count_after, failures_between
from rerail.recovery.executor import RESTARTS
from rerail.recovery.store.plans import verified_since


def fleet_since(text: str) -> FleetView:
    """Return the fleet view from a time, or a span before now (7d, 12h), to now.

    Raises:
        UsageError: `text` is no time.
        StoreError: The store cannot be read.
    """
    since, until = since_iso(text), now_iso()
    with opened_store() as engine, reading(engine) as connection:
        return fleet_view(
            failures_between(connection, since, until),
            running_again=verified_since(connection, from_iso(since).timestamp(), RESTARTS),
            since=since,
            until=until,
            healthy=count_healthy(connection, since=since, until=until),
            later=count_after(connection, until),
        )
