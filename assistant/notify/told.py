"""What people were told, kept in the store: nothing is said twice, and nothing is forgotten.

`wanted` is the last timeline entry that may have changed what is to be said, `told` the one up to which
it was said; a row is due while they differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Connection,
    Float,
    MetaData,
    String,
    Table,
    Text,
    func,
    insert,
    select,
    update,
)

from rerail.assistant.notify import site_words
from rerail.assistant.notify.service import Handle
from rerail.knowledge_base.store.tables import TIMELINE
from rerail.recovery.store import control

METADATA = MetaData()
NOTICES = Table(
    "notices",
    METADATA,
    Column("incident", String(32), primary_key=True),
    Column("service", String(48), primary_key=True),
    Column("wanted", BigInteger),
    Column("told", BigInteger),
    Column("not_before", Float),
    Column("tries", BigInteger),
    Column("open", Boolean),
    Column("digest", String(64)),
    Column("handle", JSON),
    Column("note", Text),
)
IDLE = 1e18
"""`not_before` of a row of which nothing is to be told."""
OVERLAP = 200
"""So many entries before the newest are looked at again: a slow transaction commits out of order."""
_LONGEST_WAIT_S = 600.0


@dataclass(frozen=True, slots=True)
class Due:
    """One incident of which a service has something to tell."""

    incident: str
    wanted: int
    tries: int
    digest: str
    handle: Handle


def start(connection: Connection, service: str) -> None:
    """Let a service that was never heard of begin with what comes now, not with years of incidents."""
    if control.get(connection, _cursor(service)) is None:
        newest = _newest(connection)
        control.put(connection, _cursor(service), newest)
        control.put(connection, _began(service), newest)
    if control.get(connection, _words(service)) is None:
        control.put(connection, _words(service), site_words.newest(connection))


def look(connection: Connection, service: str, now: float) -> int:
    """Note what is new of incidents and of rerail itself; return how many rows are due or wait for another try."""
    since = int(control.get(connection, _cursor(service)) or 0)
    newest = _newest(connection)
    if newest > since:
        changed = connection.execute(
            select(TIMELINE.c.incident, func.max(TIMELINE.c.id))
            .where(TIMELINE.c.id > _floor(connection, service, since))
            .group_by(TIMELINE.c.incident)
        ).all()
        for incident, last in changed:
            _want(connection, str(incident), service, int(last), now)
        control.put(connection, _cursor(service), newest)
    seen = int(control.get(connection, _words(service)) or 0)
    for key, number in site_words.changed(connection, seen):
        _want(connection, key, service, number, now)
        seen = max(seen, number)
        control.put(connection, _words(service), seen)
    query = select(func.count()).select_from(NOTICES)
    waiting = query.where(NOTICES.c.service == service, NOTICES.c.not_before < IDLE)
    return int(connection.execute(waiting).scalar() or 0)


def claim(connection: Connection, service: str, now: float, hold_s: float) -> Due | None:
    """Take the next row that is due, so that nobody else tells it meanwhile; None where none is."""
    row = connection.execute(
        select(NOTICES)
        .where(NOTICES.c.service == service, NOTICES.c.not_before <= now)
        .order_by(NOTICES.c.not_before)
        .limit(1)
    ).first()
    if row is None:
        return None
    taken = connection.execute(
        update(NOTICES)
        .where(
            NOTICES.c.incident == row.incident,
            NOTICES.c.service == service,
            NOTICES.c.not_before == row.not_before,
        )
        .values(not_before=now + hold_s)
    )
    if taken.rowcount != 1:
        return None
    return Due(row.incident, row.wanted, row.tries, row.digest, dict(row.handle))


def said(
    connection: Connection, service: str, due: Due, *, digest: str, handle: Handle, is_open: bool
) -> None:
    """Note that people know an incident as it was when the row was taken."""
    _set(
        connection,
        *(service, due),
        {"told": due.wanted, "tries": 0, "note": "", "digest": digest, "handle": handle, "open": is_open},
    )  # fmt: skip
    newer = (NOTICES.c.service == service) & (NOTICES.c.incident == due.incident)
    connection.execute(
        update(NOTICES).where(newer, NOTICES.c.wanted == NOTICES.c.told).values(not_before=IDLE)
    )
    connection.execute(
        update(NOTICES).where(newer, NOTICES.c.wanted > NOTICES.c.told).values(not_before=0.0)
    )


def failed(
    connection: Connection, service: str, due: Due, why: str, *, now: float, soon: bool
) -> float:
    """Note that it could not be told; return in how many seconds it is tried again.

    `soon` begins with two seconds and doubles; else it is ten minutes: only a person can help.
    """
    tries = due.tries + 1
    wait_s = min(_LONGEST_WAIT_S, 2.0**tries) if soon else _LONGEST_WAIT_S
    _set(connection, service, due, {"tries": tries, "note": why[:500], "not_before": now + wait_s})
    return wait_s


def is_alone(connection: Connection, service: str, incident: str, key: str) -> bool:
    """Tell whether no other open incident was told by this service under the same key."""
    rows = connection.execute(
        select(NOTICES.c.handle).where(
            NOTICES.c.service == service, NOTICES.c.open, NOTICES.c.incident != incident
        )
    )
    return all(row.handle.get("key") != key for row in rows)


def digest_of(marks: str) -> str:
    """Return what is remembered of the words that were told."""
    return sha256(marks.encode("utf-8", "replace")).hexdigest()


def waiting(connection: Connection) -> list[Any]:
    """Return the rows that could not be told yet (incident, service, tries, note)."""
    query = select(NOTICES.c.incident, NOTICES.c.service, NOTICES.c.tries, NOTICES.c.note)
    return list(connection.execute(query.where(NOTICES.c.tries > 0).order_by(NOTICES.c.incident)))


def _set(connection: Connection, service: str, due: Due, values: dict[str, Any]) -> None:
    connection.execute(
        update(NOTICES)
        .where(NOTICES.c.incident == due.incident, NOTICES.c.service == service)
        .values(**values)
    )


def _want(connection: Connection, incident: str, service: str, last: int, now: float) -> None:
    """Note that an incident has something new; a row that waits for another try goes on waiting."""
    here = (NOTICES.c.incident == incident) & (NOTICES.c.service == service)
    known = connection.execute(select(NOTICES.c.wanted, NOTICES.c.not_before).where(here)).first()
    if known is None:
        connection.execute(
            insert(NOTICES).values(
                incident=incident, service=service, wanted=last, told=0, not_before=now,
                tries=0, open=False, digest="", handle={}, note="",
            )
        )  # fmt: skip
    elif last > known.wanted:
        values = {"wanted": last, "not_before": min(known.not_before, now)}
        if known.not_before < IDLE:
            values.pop("not_before")
        connection.execute(update(NOTICES).where(here).values(**values))


def _newest(connection: Connection) -> int:
    return int(connection.execute(select(func.max(TIMELINE.c.id))).scalar() or 0)


def _floor(connection: Connection, service: str, since: int) -> int:
    """Return from where on entries are looked at: a little back, but never before the service began."""
    began = int(control.get(connection, _began(service)) or 0)
    return max(since - OVERLAP, began)


def _cursor(service: str) -> str:
    return f"notices/{service}"


def _words(service: str) -> str:
    return f"worded/{service}"


def _began(service: str) -> str:
    return f"noticed/{service}"
