"""The evidence snapshots of incidents: one of 100,000 ranks takes a second to read, so the last few are kept."""

from __future__ import annotations

import gc
from collections import OrderedDict
from threading import Lock

from sqlalchemy import Connection, Text, cast, desc, select

from rerail.domain.incident import Snapshot
from rerail.knowledge_base.store.tables import SNAPSHOTS

_MOST_KEPT = 4
_KEPT: OrderedDict[str, Snapshot] = OrderedDict()
_LOCK = Lock()
_READING = Lock()
"""Held while one is read: nobody reads the same twice, and the collector is switched by one at a time."""


def _read(body: str) -> Snapshot:
    """Return a snapshot, without looking for garbage among hundreds of thousands of objects that all stay."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return Snapshot.model_validate_json(body)
    finally:
        if collects:
            gc.enable()


def latest_snapshot(connection: Connection, incident: str) -> Snapshot:
    """Return the latest snapshot of an incident, an empty one where it has none.

    Rows are never changed and known by the hash of what they hold, so a kept one is what lies in the store.
    """
    found = connection.execute(
        select(SNAPSHOTS.c.id, SNAPSHOTS.c.content)
        .where(SNAPSHOTS.c.incident == incident)
        .order_by(desc(SNAPSHOTS.c.id))
        .limit(1)
    ).one_or_none()
    if found is None:
        return Snapshot()
    with _LOCK:
        if found.content in _KEPT:
            _KEPT.move_to_end(found.content)
            return _KEPT[found.content]
    body = connection.execute(
        select(cast(SNAPSHOTS.c.body, Text)).where(SNAPSHOTS.c.id == found.id)
    ).scalar_one()
    with _READING:
        with _LOCK:
            if found.content in _KEPT:  # another request read it in the meantime
                return _KEPT[found.content]
        read = _read(body)
    with _LOCK:
        _KEPT[found.content] = read
        while len(_KEPT) > _MOST_KEPT:
            _KEPT.popitem(last=False)
    return read
