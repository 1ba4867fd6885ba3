"""Messages to people that must not be lost: kept with the change that they tell of, until delivered.

A failed, refused or unknown step is told by the same ways as a plan. The message is written in the
transaction that changes the step's state, so that no crash in between leaves it untold.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from rerail.log_parsers.redaction import redact_all
from rerail.recovery.store.tables import CONTROL

PREFIX = "tell/"


def put(connection: Connection, key: str, message: dict[str, Any]) -> None:
    """Keep a message until it is delivered; the same key twice is one message."""
    name = f"{PREFIX}{key}"[:64]
    known = connection.execute(select(CONTROL.c.key).where(CONTROL.c.key == name)).first()
    if known is None:
        value = {"message": redact_all(message), "tries": 0, "not_before": 0.0}
        connection.execute(insert(CONTROL).values(key=name, value=value))


def due(connection: Connection, now: float) -> Iterator[tuple[str, dict[str, Any], int]]:
    """Yield key, message and number of tries of what is to be delivered now."""
    query = select(CONTROL).where(CONTROL.c.key.startswith(PREFIX)).order_by(CONTROL.c.key)
    for row in connection.execute(query).all():
        if row.value["not_before"] <= now:
            yield row.key, row.value["message"], row.value["tries"]


def delivered(connection: Connection, key: str) -> None:
    """Forget a message that has reached its people."""
    connection.execute(delete(CONTROL).where(CONTROL.c.key == key))


def later(
    connection: Connection, key: str, message: dict[str, Any], tries: int, now: float
) -> None:
    """Try a message again, later each time, ten minutes apart at most; it is never given up."""
    value = {"message": message, "tries": tries, "not_before": now + min(600.0, 2.0**tries)}
    connection.execute(update(CONTROL).where(CONTROL.c.key == key).values(value=value))
