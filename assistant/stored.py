"""The store as every command but `diagnose` opens it: what waits in the inbox is taken in first."""

from __future__ import annotations

import getpass
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine

from rerail.knowledge_base.store.engine import open_store, reading
from rerail.knowledge_base.store.inbox import ingest
from rerail.knowledge_base.store.incidents import IncidentFile


@contextmanager
def opened_store() -> Iterator[Engine]:
    """Open the store, take in what waits, and close it again.

    Raises:
        StoreError: when it cannot be opened or written.
    """
    engine = open_store()
    try:
        ingest(engine)
        yield engine
    finally:
        engine.dispose()


def load_incident(name: str) -> IncidentFile:
    """Return everything on one incident.

    Raises:
        UsageError: when no incident has this id.
        StoreError: when the store cannot be read.
    """
    from rerail.assistant.response import load_whole

    with opened_store() as engine, reading(engine) as connection:
        return load_whole(connection, name)


def who(given: str | None) -> str:
    """Return the name of the person who acts: as given, else the login name."""
    if given:
        return given
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without a user database
        return "unknown"
