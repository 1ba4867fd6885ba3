"""The store as every command but `diagnose` opens it: what waits in the inbox is taken in first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine

from rerail.knowledge_base.store.engine import open_store
from rerail.knowledge_base.store.inbox import ingest


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
