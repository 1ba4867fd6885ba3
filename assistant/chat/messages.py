"""The conversation in the store: append-only; an undo is a row of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, insert, select

from rerail.knowledge_base.store.tables import CHAT_MESSAGES
from rerail.log_parsers.redaction import redact, redact_all


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `role` is user, assistant, record (answered without a model), note or undo."""

    role: str
    text: str
    time: str
    data: dict[str, Any] = field(default_factory=dict)


def save_message(connection: Connection, incident: str, message: Message) -> None:
    """Append a message."""
    connection.execute(
        insert(CHAT_MESSAGES).values(
            incident=incident,
            recorded_at=message.time,
            role=message.role,
            text=redact(message.text),
            data=redact_all(message.data),
        )
    )


def load_messages(connection: Connection, incident: str) -> list[Message]:
    """Return the conversation as it stands: what was undone is left out."""
    rows = connection.execute(
        select(CHAT_MESSAGES)
        .where(CHAT_MESSAGES.c.incident == incident)
        .order_by(CHAT_MESSAGES.c.id)
    )
    found: list[Message] = []
    for row in rows:
        if row.role == "undo":
            asked = [i for i, m in enumerate(found) if m.role == "user"]
            del found[asked[-1] if asked else len(found) :]
            continue
        found.append(Message(row.role, row.text, row.recorded_at, row.data))
    return found
