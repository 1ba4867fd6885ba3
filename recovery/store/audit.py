"""The audit log: who did what, why and with which result; each entry holds the hash of the one before.

A changed, removed or inserted entry breaks the chain from there on. The database forbids changes by
triggers as well; the chain shows changes made past the database. Removing the newest entries can
only be seen by somebody who kept the last digest, so `verify` reports it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, desc, insert, select, text

from rerail.knowledge_base.store.clock import now_iso
from rerail.recovery.store.tables import AUDIT

START = "0" * 64


@dataclass(frozen=True, slots=True)
class AuditReport:
    """How many entries were checked, where the chain breaks (None: nowhere), the last digest."""

    entries: int
    broken_at: int | None
    why: str
    last: str


def _digest(
    number: int, time: str, actor: str, what: str, subject: str, body: Any, previous: str
) -> str:
    parts = [number, time, actor, what, subject, body, previous]
    return hashlib.sha256(
        json.dumps(parts, sort_keys=True, separators=(",", ":")).encode()
    ).hexdigest()


def note(connection: Connection, actor: str, what: str, subject: str, **body: Any) -> int:
    """Append one entry inside the caller's transaction; return its number."""
    if connection.dialect.name == "postgresql":
        # Two writers must not take the same number; SQLite has one writer at a time anyway.
        connection.execute(text("LOCK TABLE recovery_audit IN EXCLUSIVE MODE"))
    last = connection.execute(
        select(AUDIT.c.number, AUDIT.c.digest).order_by(desc(AUDIT.c.number)).limit(1)
    ).first()
    number, previous = (1, START) if last is None else (last.number + 1, str(last.digest))
    plain = json.loads(json.dumps(body, default=str))
    time = now_iso()
    connection.execute(
        insert(AUDIT).values(
            number=number,
            time=time,
            actor=actor,
            what=what,
            subject=subject,
            body=plain,
            previous=previous,
            digest=_digest(number, time, actor, what, subject, plain, previous),
        )
    )
    return number


def verify(connection: Connection) -> AuditReport:
    """Walk the whole chain."""
    previous, expected, count = START, 1, 0
    for row in connection.execute(select(AUDIT).order_by(AUDIT.c.number)):
        why = ""
        if row.number != expected:
            why = f"entry {expected} is missing"
        elif row.previous != previous:
            why = "it does not follow from the entry before"
        elif row.digest != _digest(
            *(row.number, row.time, row.actor, row.what, row.subject, row.body, row.previous)
        ):
            why = "its content was changed"
        if why:
            return AuditReport(count, expected, why, previous)
        previous, expected, count = str(row.digest), expected + 1, count + 1
    return AuditReport(count, None, "", previous)


def entries(connection: Connection, subject: str | None = None, limit: int = 200) -> list[Any]:
    """Return entries, the latest last; `subject` may be a plan or an incident."""
    query = select(AUDIT).order_by(desc(AUDIT.c.number)).limit(limit)
    if subject is not None:
        query = query.where(AUDIT.c.subject.startswith(subject))
    return list(reversed(connection.execute(query).all()))
