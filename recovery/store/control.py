"""Small values that outlive a process: where the poll stands, and the breaker."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, delete, insert, select

from rerail.recovery.store import audit
from rerail.recovery.store.tables import CONTROL

BREAKER = "breaker"


def get(connection: Connection, key: str) -> Any:
    """Return a value, or None."""
    return connection.execute(select(CONTROL.c.value).where(CONTROL.c.key == key)).scalar()


def put(connection: Connection, key: str, value: Any) -> None:
    """Set a value."""
    connection.execute(delete(CONTROL).where(CONTROL.c.key == key))
    connection.execute(insert(CONTROL).values(key=key, value=value))


def breaker_reason(connection: Connection) -> str:
    """Return why the breaker is open, or an empty string while it is closed."""
    value = get(connection, BREAKER)
    return str(value.get("why", "open")) if value else ""


def trip(connection: Connection, why: str, by: str = "rerail") -> bool:
    """Open the breaker; return whether it was closed before. Nothing in rerail closes it again."""
    if breaker_reason(connection):
        return False
    number = audit.note(connection, by, "breaker_opened", "breaker", why=why)
    put(connection, BREAKER, {"why": why, "entry": number})
    return True


def close_breaker(connection: Connection, by: str, reason: str) -> bool:
    """Close the breaker on a person's word; return whether it was open."""
    why = breaker_reason(connection)
    if not why:
        return False
    audit.note(connection, by, "breaker_closed", "breaker", was=why, reason=reason)
    connection.execute(delete(CONTROL).where(CONTROL.c.key == BREAKER))
    return True
