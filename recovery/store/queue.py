"""The durable queue of job events: each event once, claimed by one worker, never lost in a crash."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, func, insert, or_, select, update

from rerail.domain.job import JobEvent
from rerail.recovery.store.tables import QUEUE

MOST_TRIES = 12
AGAIN_AFTER_S = 60.0
"""How long after an event was given up it may be told anew: pollers tell every few seconds."""
STALLED = "STALLED"
"""The state word of an event that says: the job runs, and makes no progress."""
SLOW = "SLOW"
"""The state word of an event that says: the job runs, and one of its groups holds up the others."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """One event that this worker may work on until its claim runs out."""

    id: int
    event: JobEvent
    tries: int
    received_at: float


def queue_key(event: JobEvent) -> str:
    """Return the key under which an event is taken once: a stall may come before the failure.

    A job may be slow more than once: each split of its micro-batches counts anew.
    """
    if event.state == STALLED:
        return f"{event.key}/stalled"
    if event.state == SLOW:
        counts = json.dumps(event.extra.get("micro_batches"))
        return f"{event.key}/slow/{hashlib.sha256(counts.encode()).hexdigest()[:12]}"
    return event.key


def put(connection: Connection, event: JobEvent, *, now: float, wait_s: float = 0.0) -> bool:
    """Add an event; return False where the job attempt is known already (idempotency key).

    What was given up is taken up again when it is told of later: a false early event, or a
    scheduler that was away for half an hour, must not hide the failure.
    """
    key = queue_key(event)
    given_up = (QUEUE.c.key == key) & (QUEUE.c.state == "failed")
    revived = connection.execute(
        update(QUEUE)
        .where(given_up & (QUEUE.c.done_at <= now - AGAIN_AFTER_S))
        .values(state="waiting", event=event.model_dump(mode="json"), tries=0, done_at=None)
        .values(received_at=now, not_before=now + wait_s)
    )
    if revived.rowcount:
        return True
    if known(connection, key):
        return False
    connection.execute(
        insert(QUEUE).values(
            key=key,
            state="waiting",
            event=event.model_dump(mode="json"),
            received_at=now,
            not_before=now + wait_s,
            tries=0,
        )
    )
    return True


def known(connection: Connection, key: str) -> bool:
    """Return whether an event of that key was ever put in."""
    row = connection.execute(select(QUEUE.c.id).where(QUEUE.c.key == key)).first()
    return row is not None


def event_of(connection: Connection, key: str) -> JobEvent | None:
    """Return the event that was put in under a key, or None."""
    event = connection.execute(select(QUEUE.c.event).where(QUEUE.c.key == key)).scalar()
    return None if event is None else JobEvent.model_validate(event)


def claim(
    connection: Connection,
    worker: str,
    *,
    now: float,
    most: int = 1,
    hold_s: float = 300.0,
    is_gone: Callable[[str], bool] = lambda holder: False,
    cluster: str | None = None,
) -> list[Claimed]:
    """Take due events; a claim that ran out, or whose worker `is_gone`, is due again.

    `cluster` leaves the events of other clusters to those who can ask their schedulers.
    """
    _release_the_dead(connection, now, is_gone)
    due = or_(
        (QUEUE.c.state == "waiting") & (QUEUE.c.not_before <= now),
        (QUEUE.c.state == "claimed") & (QUEUE.c.claimed_until < now),
    )
    if cluster is not None:
        due &= QUEUE.c.key.startswith(f"{cluster}/", autoescape=True)
    query = select(QUEUE).where(due).order_by(QUEUE.c.not_before, QUEUE.c.id).limit(most)
    if connection.dialect.name == "postgresql":
        query = query.with_for_update(skip_locked=True)
    rows = connection.execute(query).all()
    for row in rows:
        connection.execute(
            update(QUEUE)
            .where(QUEUE.c.id == row.id)
            .values(state="claimed", claimed_by=worker, claimed_until=now + hold_s)
            .values(tries=row.tries + 1)
        )
    return [
        Claimed(row.id, JobEvent.model_validate(row.event), row.tries + 1, row.received_at)
        for row in rows
    ]


def _release_the_dead(connection: Connection, now: float, is_gone: Callable[[str], bool]) -> None:
    """Give back what workers hold that are known to be dead, without waiting for their claims."""
    query = select(QUEUE.c.claimed_by).where(QUEUE.c.state == "claimed").distinct()
    for (holder,) in connection.execute(query).all():
        if is_gone(str(holder)):
            connection.execute(
                update(QUEUE)
                .where(QUEUE.c.state == "claimed", QUEUE.c.claimed_by == holder)
                .values(state="waiting", not_before=now, claimed_by=None, claimed_until=None)
            )


def finish(connection: Connection, item: int, *, now: float, incident: str | None) -> None:
    """Mark an event as worked off."""
    _set(connection, item, state="done", incident=incident, done_at=now, note=None)


def give_back(connection: Connection, item: Claimed, why: str, *, now: float) -> None:
    """Put an event back after a failure, later each time; give up after twelve tries."""
    if item.tries >= MOST_TRIES:
        _set(connection, item.id, state="failed", note=why, done_at=now)
        return
    delay = min(300.0, 2.0 * math.pow(1.8, item.tries - 1))
    _set(connection, item.id, state="waiting", not_before=now + delay, note=why)


def _set(connection: Connection, item: int, **values: Any) -> None:
    connection.execute(
        update(QUEUE)
        .where(QUEUE.c.id == item)
        .values(**values, claimed_by=None, claimed_until=None)
    )


def counts(connection: Connection) -> dict[str, int]:
    """Return how many events are in each state."""
    rows = connection.execute(select(QUEUE.c.state, func.count()).group_by(QUEUE.c.state))
    return {str(state): int(number) for state, number in rows}
