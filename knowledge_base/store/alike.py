"""Incidents of the same cause as another, from indexes that are read from their newest end."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Connection, desc, func, or_, select

from rerail.knowledge_base.store.incidents import LISTED, WHEN, IncidentRow, failed, row_of
from rerail.knowledge_base.store.tables import INCIDENTS


def alike(connection: Connection, one: IncidentRow, *, limit: int = 10) -> list[IncidentRow]:
    """Return other incidents of the same root cause: the same entity first, then the latest.

    Without a cause nothing is alike: two unknowns need not be the same unknown, and runs that did
    not fail have nothing to compare.
    """
    if one.true_type is None or not one.failed:
        return []
    said = func.coalesce(INCIDENTS.c.confirmed_type, INCIDENTS.c.failure_type)
    same = or_(INCIDENTS.c.fingerprint == one.fingerprint, said == one.true_type)
    # Each of the three has an index that is read from its newest end.
    ways: list[tuple[ColumnElement[bool], ...]] = [
        (INCIDENTS.c.fingerprint == one.fingerprint,),
        (said == one.true_type,),
    ]
    if one.entity is not None:
        ways.append((INCIDENTS.c.entity == one.entity, same))
    found = {}
    for way in ways:
        query = select(*LISTED).where(*way, failed(), INCIDENTS.c.id != one.id)
        for row in connection.execute(query.order_by(desc(WHEN)).limit(limit)):
            found[row.id] = row_of(row)
    rows = list(found.values())
    rows.sort(key=lambda r: r.time, reverse=True)
    rows.sort(
        key=lambda r: (
            r.entity is None or r.entity != one.entity,
            r.fingerprint != one.fingerprint,
        )
    )
    return rows[:limit]
