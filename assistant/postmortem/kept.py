"""Drafts of post-mortems in the store: each that was written, by a command or on the page, and the last one."""

from __future__ import annotations

from hashlib import sha256

from sqlalchemy import Connection, insert, select

from rerail.knowledge_base.store.clock import now_iso
from rerail.knowledge_base.store.tables import DRAFTS


def keep_draft(connection: Connection, subject: str, text: str, words: str) -> None:
    """Keep what was written; `words` is the digest of a model's sentences, for the next sign-off."""
    connection.execute(
        insert(DRAFTS).values(
            subject=subject,
            kind="postmortem",
            recorded_at=now_iso(),
            content=sha256(text.encode()).hexdigest(),
            body=text,
            data={"words": words} if words else {},
        )
    )


def last_draft(connection: Connection, subject: str) -> str:
    """Return the draft that was kept last; empty where there is none."""
    last = connection.execute(
        select(DRAFTS.c.body)
        .where(DRAFTS.c.subject == subject, DRAFTS.c.kind == "postmortem")
        .order_by(DRAFTS.c.id.desc())
        .limit(1)
    ).scalar()
    return str(last or "")
