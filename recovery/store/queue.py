"""The durable queue of job events: each event once, claimed by one worker, never lost in a crash."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, func, insert, or_, select, update

from rerail.domain.job import JobEvent
from rerail.log_parsers.redaction import redact_all
from rerail.recovery.store.tables import QUEUE

MOST_TRIES = 12
AGAIN_AFTER_S = 60.0
"""How long after an event was given up it may be told anew: pollers tell every few seconds."""
STALLED = "STALLED"
"""The state word of an event that says: the job runs, and makes no progress."""
SLOW = "SLOW"
"""The state word of an event that says: the job runs, and one of its groups holds up the others."""
CONFIRMED = ("poll", "progress", "speeds", "slurm-strigger", "kubernetes-watch")
"""Sources that asked the scheduler before they told: their events are worked off first."""
MOST_LOOKED_AT = 2_000
LONGEST_DELAY_S = 300.0


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


def put(connection: Connection, event: JobEvent, *, now: float) -> bool:
    """Add an event; return False where the job attempt is known already (idempotency key).

    What waits for the scheduler's confirmation is due at once when the scheduler itself tells it.
    What was given up is taken up again when it is told of later: a false early event, or a
    scheduler that was away for half an hour, must not hide the failure.
    """
    key = queue_key(event)
    row = connection.execute(
        select(QUEUE.c.id, QUEUE.c.state, QUEUE.c.done_at, QUEUE.c.event).where(QUEUE.c.key == key)
    ).first()
    # What a scheduler adds (a job's name, a comment, an alert's labels) was written by anybody.
    kept = event.model_copy(update={"extra": redact_all(event.extra)})
    fresh = {"event": kept.model_dump(mode="json"), "tries": 0, "note": None}
    if row is not None and row.state == "failed" and row.done_at <= now - AGAIN_AFTER_S:
        connection.execute(
            update(QUEUE)
            .where(QUEUE.c.id == row.id)
            .values(**fresh, state="waiting", done_at=None, received_at=now, not_before=now)
        )
        return True
    if row is not None and row.state == "waiting" and event.source in CONFIRMED:
        # Somebody told too early, or made it up, and the scheduler did not confirm it then. Now it
        # does: its own word is not kept waiting by the retries of the other.
        if row.event.get("source") not in CONFIRMED:
            connection.execute(
                update(QUEUE).where(QUEUE.c.id == row.id).values(**fresh, not_before=now)
            )
        return False
    if row is not None:
        return False
    connection.execute(
        insert(QUEUE).values(
            key=key,
            state="waiting",
            event=fresh["event"],
            received_at=now,
            not_before=now,
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
    query = select(QUEUE).where(due).order_by(QUEUE.c.not_before, QUEUE.c.id)
    query = query.limit(MOST_LOOKED_AT)
    if connection.dialect.name == "postgresql":
        query = query.with_for_update(skip_locked=True)
    rows = in_turn(connection.execute(query).all(), most)
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


def in_turn(rows: Sequence[Row[Any]], most: int) -> list[Row[Any]]:
    """Return the rows to work on next: what the scheduler told first, then each source in its turn.

    An event that was not confirmed before comes behind those that were never tried, and never takes
    more than one place of a turn: a flood of made-up events delays nobody else's.
    """
    told = [one for one in rows if one.event.get("source") in CONFIRMED]
    waiting: dict[tuple[bool, str], list[Row[Any]]] = {}
    for one in rows:
        source = str(one.event.get("source", "")).partition(":")[0]
        if source not in CONFIRMED:
            waiting.setdefault((bool(one.tries), source), []).append(one)
    chosen = told[:most]
    fresh = [group for (tried, _), group in waiting.items() if not tried]
    again = [group for (tried, _), group in waiting.items() if tried]
    for turn in range(max(map(len, fresh), default=0)):
        chosen += [group[turn] for group in fresh if turn < len(group)]
    chosen = chosen[:most]
    # One place is kept for what has to be asked again, so that a steady stream does not starve it.
    for group in again:
        chosen = [*chosen[: most - 1], group[0]] if len(chosen) >= most else [*chosen, group[0]]
    return chosen


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


def give_back(connection: Connection, item: Claimed, why: str, *, now: float) -> bool:
    """Put an event back after a failure, later each time; return whether it was given up instead.

    It is after twelve tries.
    """
    if item.tries >= MOST_TRIES:
        _set(connection, item.id, state="failed", note=why, done_at=now)
        return True
    delay = min(LONGEST_DELAY_S, 2.0 * math.pow(1.8, item.tries - 1))
    _set(connection, item.id, state="waiting", not_before=now + delay, note=why)
    return False


def defer(connection: Connection, item: Claimed, why: str, *, until: float, incident: str) -> None:
    """Put an event back that is understood, to wait for others like it; it costs no try."""
    _set(
        *(connection, item.id),
        state="waiting",
        not_before=until,
        note=why,
        incident=incident,
        tries=item.tries - 1,
    )


def hasten(connection: Connection, incidents: Sequence[str], now: float) -> None:
    """Let deferred events be worked off now: what they waited for has come."""
    connection.execute(
        update(QUEUE)
        .where(QUEUE.c.state == "waiting", QUEUE.c.incident.in_(list(incidents)))
        .values(not_before=now)
    )


def incident_to_revisit(connection: Connection, key: str) -> str | None:
    """Return the incident of an event that is done and was not decided on anew yet, or None."""
    row = connection.execute(
        select(QUEUE.c.incident, QUEUE.c.event).where(QUEUE.c.key == key, QUEUE.c.state == "done")
    ).first()
    if row is None or row.incident is None or "node_lost" in (row.event.get("extra") or {}):
        return None
    return str(row.incident)


def revisit(connection: Connection, key: str, *, nodes: Sequence[str], now: float) -> bool:
    """Let an event be worked off once more: a node of its attempt turned out to be lost.

    Returns:
        False where the event is not done, or was revisited already.
    """
    if incident_to_revisit(connection, key) is None:
        return False
    event = dict(connection.execute(select(QUEUE.c.event).where(QUEUE.c.key == key)).scalar_one())
    event["extra"] = {**(event.get("extra") or {}), "node_lost": list(nodes)}
    connection.execute(
        update(QUEUE)
        .where(QUEUE.c.key == key)
        .values(state="waiting", event=event, tries=0, not_before=now, done_at=None)
    )
    return True


def others_open(connection: Connection, item: Claimed, since: float) -> int:
    """Return how many other failures came in since a time and wait, or are being worked on.

    What came by a webhook, and what was not confirmed before, may be made up and does not count.
    """
    query = select(QUEUE.c.event).where(
        QUEUE.c.id != item.id,
        QUEUE.c.received_at >= since,
        QUEUE.c.tries <= 1,
        QUEUE.c.state.in_(("waiting", "claimed")),
    )
    sources = (
        str(event.get("source", "")) for (event,) in connection.execute(query.limit(MOST_LOOKED_AT))
    )
    return sum(not one.startswith(("webhook", "alertmanager")) for one in sources)


def after_clock_jump(connection: Connection, now: float) -> int:
    """Bring waiting times back that lie further ahead than any could: the clock was set back."""
    far = now + LONGEST_DELAY_S + 1.0
    moved = connection.execute(
        update(QUEUE)
        .where(QUEUE.c.state == "waiting", QUEUE.c.not_before > far)
        .values(not_before=now)
    )
    held = connection.execute(
        update(QUEUE)
        .where(QUEUE.c.state == "claimed", QUEUE.c.claimed_until > far)
        .values(claimed_until=far)
    )
    return int(moved.rowcount + held.rowcount)


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
