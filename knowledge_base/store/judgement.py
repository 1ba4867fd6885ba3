"""A person's word on an incident: confirmation, correction, and the sign-off that makes it knowledge."""

from __future__ import annotations

from difflib import get_close_matches

from sqlalchemy import Connection, desc, select, update

from rerail.domain.incident import Confirmation, EntrySource, SignOff, TimelineEntry
from rerail.errors import UsageError
from rerail.knowledge_base.store.incidents import append, lapse, to_index
from rerail.knowledge_base.store.tables import DRAFTS, INCIDENTS, TIMELINE
from rerail.knowledge_base.taxonomy import NO_FAILURE, leaves


def confirm(connection: Connection, name: str, word: Confirmation) -> bool:
    """Write down a person's word on the verdict; return whether it ended a sign-off.

    A sign-off vouches for a cause and a first fault: another word on either ends it.

    Raises:
        UsageError: when a correction names no leaf of the taxonomy.
    """
    if word.failure_type is not None and word.failure_type not in (NO_FAILURE, *leaves()):
        raise UsageError(
            f"{word.failure_type!r} is no failure type",
            subject=word.failure_type,
            hint=f"one of {', '.join(_near(word.failure_type))}; all: knowledge_base/taxonomy.yaml",
        )
    row = connection.execute(
        select(
            INCIDENTS.c.failure_type, INCIDENTS.c.confirmed_type, INCIDENTS.c.signed_off_at
        ).where(INCIDENTS.c.id == name)
    ).one()
    true = word.failure_type or (row.failure_type if word.verdict == "right" else None)
    other = true != row.confirmed_type or word.first_fault not in (
        None,
        _named_fault(connection, name),
    )
    said = {"right": "the verdict is right", "partly": "the verdict is partly right"}
    text = said.get(word.verdict, "the verdict is wrong")
    if word.failure_type:
        text += f": it was {word.failure_type}"
    if word.note:
        text += f" ({word.note})"
    append(
        connection,
        name,
        TimelineEntry(
            time=word.time,
            source=EntrySource.HUMAN,
            kind="confirmed",
            text=text,
            actor=word.by,
            data=word.model_dump(mode="json"),
        ),
    )
    connection.execute(
        update(INCIDENTS)
        .where(INCIDENTS.c.id == name)
        .values(confirmed=word.verdict, confirmed_type=true)
    )
    to_index(connection, name)
    ends = row.signed_off_at is not None and other
    if ends:
        lapse(connection, name, f"said after it: {text}", word.time, by=word.by)
    return ends


def _named_fault(connection: Connection, name: str) -> str | None:
    """Return the first fault, as file:line, that the last word of a person named."""
    last = connection.execute(
        select(TIMELINE.c.data)
        .where(TIMELINE.c.incident == name, TIMELINE.c.kind == "confirmed")
        .order_by(desc(TIMELINE.c.number))
        .limit(1)
    ).scalar()
    found = (last or {}).get("first_fault")
    return str(found) if found is not None else None


def _near(name: str) -> list[str]:
    """Return the failure types that a misspelt or invented one may have meant."""
    known = [*leaves(), NO_FAILURE]
    return get_close_matches(name, known, 3, cutoff=0.4) or ["cuda_oom", "python_exception"]


def sign_off(connection: Connection, name: str, word: SignOff) -> None:
    """Write down that a person vouches for the record; the incident may be retrieved from now on.

    Raises:
        UsageError: when nobody has confirmed or corrected the verdict yet.
    """
    row = connection.execute(
        select(INCIDENTS.c.confirmed, INCIDENTS.c.confirmed_type).where(INCIDENTS.c.id == name)
    ).one()
    if row.confirmed is None or (row.confirmed != "right" and row.confirmed_type is None):
        raise UsageError(
            f"the true cause of {name} was not said yet",
            subject=name,
            hint=f"rerail confirm {name} --verdict right, or --verdict wrong --type LEAF",
        )
    seen = connection.execute(
        select(DRAFTS.c.data).where(DRAFTS.c.subject == name).order_by(desc(DRAFTS.c.id)).limit(1)
    ).scalar()
    word = word.model_copy(update={"words_digest": str((seen or {}).get("words", ""))})
    append(
        connection,
        name,
        TimelineEntry(
            time=word.time,
            source=EntrySource.HUMAN,
            kind="signed_off",
            text="signed off" + (f": {word.resolution}" if word.resolution else ""),
            actor=word.by,
            data=word.model_dump(mode="json"),
        ),
    )
    connection.execute(
        update(INCIDENTS).where(INCIDENTS.c.id == name).values(signed_off_at=word.time)
    )
    to_index(connection, name)
