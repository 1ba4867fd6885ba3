"""One incident of the store, and the name of who acts."""

from __future__ import annotations

import getpass

from rerail.knowledge_base.store.engine import reading
from rerail.knowledge_base.store.incidents import IncidentFile
from rerail.knowledge_base.store.opened import opened_store


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
