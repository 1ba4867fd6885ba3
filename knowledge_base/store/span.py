"""The failures of a span of time, one small record each, without lines, series or ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, func, select

from rerail.knowledge_base.store.clock import from_iso
from rerail.knowledge_base.store.corrected import clears_machines
from rerail.knowledge_base.store.incidents import LISTED, WHEN, IncidentRow, failed, row_of
from rerail.knowledge_base.store.tables import DIAGNOSES, INCIDENTS, TIMELINE


@dataclass(frozen=True, slots=True)
class SpanIncident:
    """One failure of a span.

    `idle_gpu_hours` passed between the first fault and the end of the logs, None where they do not
    tell. `nodes` are those of the latest verdict, none where a person said that no machine was at
    fault. `reported_at` is when the job ended or stood still, as the scheduler or the watcher told it, None
    where a person brought the logs; `diagnosed_at` that of the first verdict. Times are ISO 8601 in UTC.
    `lost_steps` have to be trained again; the last attempt in the logs made `made_steps`; None where not told.
    """

    row: IncidentRow
    idle_gpu_hours: float | None
    nodes: tuple[str, ...]
    reported_at: str | None
    diagnosed_at: str
    lost_steps: int | None = None
    made_steps: int | None = None


def failures_between(connection: Connection, since: str, until: str) -> list[SpanIncident]:
    """Return the failures that happened from `since` to before `until`, the earliest first."""
    inside = select(INCIDENTS.c.id).where(WHEN >= since, WHEN < until, failed())
    said = (
        select(
            DIAGNOSES.c.incident,
            func.max(DIAGNOSES.c.id).label("latest"),
            func.min(DIAGNOSES.c.recorded_at).label("diagnosed_at"),
        )
        .where(DIAGNOSES.c.incident.in_(inside))
        .group_by(DIAGNOSES.c.incident)
        .subquery()
    )
    heard = _job_events(connection, since, until)
    query: Select[Any] = (
        select(
            *LISTED,
            said.c.diagnosed_at,
            DIAGNOSES.c.diagnosis[("cost", "idle_gpu_hours")].as_float().label("idle"),
            DIAGNOSES.c.diagnosis[("cost", "lost_steps")].as_integer().label("lost_steps"),
            DIAGNOSES.c.diagnosis["attempts"].label("attempts"),
            DIAGNOSES.c.diagnosis[("suspects", "nodes")].label("nodes"),
        )
        .join(said, said.c.incident == INCIDENTS.c.id)
        .join(DIAGNOSES, DIAGNOSES.c.id == said.c.latest)
        .order_by(WHEN, INCIDENTS.c.id)
    )
    found = []
    for one in connection.execute(query):
        row = row_of(one)
        cleared = clears_machines(row.confirmed, row.true_type)
        found.append(
            SpanIncident(
                row=row,
                idle_gpu_hours=one.idle,
                nodes=() if cleared else tuple(one.nodes or ()),
                reported_at=heard.get(row.id),
                diagnosed_at=one.diagnosed_at,
                lost_steps=one.lost_steps,
                made_steps=_made(one.attempts or ()),
            )
        )
    return found


def _made(attempts: Sequence[Mapping[str, Any]]) -> int | None:
    """Return how many steps the last attempt made, from the first to the last that it printed."""
    if not attempts:
        return None
    first, last = attempts[-1].get("first_step"), attempts[-1].get("last_step")
    return last - first if first is not None and last is not None and last > first else None


def count_after(connection: Connection, until: str) -> int:
    """Count the failures whose time lies behind `until`: a clock was wrong where that is the present."""
    query = select(func.count()).select_from(INCIDENTS).where(WHEN >= until, failed())
    return int(connection.execute(query).scalar() or 0)


def _job_events(connection: Connection, since: str, until: str) -> dict[str, str]:
    """Return when the end or stall of each incident's job was first reported."""
    inside = select(INCIDENTS.c.id).where(WHEN >= since, WHEN < until, failed())
    rows = connection.execute(
        select(TIMELINE.c.incident, TIMELINE.c.time).where(
            TIMELINE.c.kind == "job_event", TIMELINE.c.incident.in_(inside)
        )
    )
    found: dict[str, str] = {}
    for incident, time in rows:
        try:
            moment = from_iso(time)
        except ValueError:  # a webhook's time in a form of its own
            continue
        if incident not in found or moment < from_iso(found[incident]):
            found[incident] = time
    return found
