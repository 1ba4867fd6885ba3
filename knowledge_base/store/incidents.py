"""Reads and writes incidents; every function takes a connection inside `reading` or `writing`.

What was said is never changed: a new diagnosis, a correction, a sign-off are further rows, and the
columns of `incidents` that lists are made from follow them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, desc, func, insert, or_, select, update

from rerail.domain.diagnosis import Diagnosis
from rerail.domain.incident import (
    Confirmation,
    EntrySource,
    Incident,
    NodeEvent,
    SignOff,
    TimelineEntry,
)
from rerail.errors import UsageError
from rerail.knowledge_base.fingerprint import fingerprint
from rerail.knowledge_base.store.clock import days_before, now_iso
from rerail.knowledge_base.store.corrected import clears_machines
from rerail.knowledge_base.store.snapshots import latest_snapshot
from rerail.knowledge_base.store.tables import (
    DIAGNOSES,
    DOCUMENT_QUEUE,
    INCIDENTS,
    SNAPSHOTS,
    SUSPECT_NODES,
    TIMELINE,
)
from rerail.knowledge_base.taxonomy import NO_FAILURE, leaves
from rerail.log_parsers.redaction import redact, redact_all


@dataclass(frozen=True, slots=True)
class IncidentRow:
    """One incident as a list shows it. Times are ISO 8601 in UTC."""

    id: str
    cluster: str
    job: str | None
    attempt: int | None
    recorded_at: str
    occurred_at: str | None
    outcome: str
    status: str
    failure_type: str | None
    fingerprint: str
    entity: str | None
    confirmed: str | None
    confirmed_type: str | None
    signed_off_at: str | None

    @property
    def true_type(self) -> str | None:
        """The leaf a person gave, else that of the rules."""
        return self.confirmed_type or self.failure_type

    @property
    def failed(self) -> bool:
        """Tell whether the job failed, or may have: by a person's word, else by the rules'."""
        if self.confirmed_type is not None and self.confirmed_type != self.failure_type:
            return self.confirmed_type != NO_FAILURE
        return self.outcome != NO_FAILURE

    @property
    def time(self) -> str:
        """When it happened, or when it was recorded where the logs do not say."""
        return self.occurred_at or self.recorded_at


@dataclass(frozen=True, slots=True)
class IncidentFile:
    """Everything on one incident: the record, its latest diagnosis, the timeline."""

    row: IncidentRow
    incident: Incident
    timeline: tuple[TimelineEntry, ...]

    @property
    def diagnosis(self) -> Diagnosis:
        """The latest diagnosis."""
        return self.incident.diagnosis

    def confirmation(self) -> Confirmation | None:
        """Return the last word of a person on the verdict."""
        said = [e for e in self.timeline if e.kind == "confirmed"]
        last = max(said, key=lambda e: e.number or 0, default=None)
        return Confirmation.model_validate(last.data) if last is not None else None

    def explanation(self) -> dict[str, Any] | None:
        """Return what a model said last, after checking."""
        for entry in reversed(self.timeline):
            if entry.kind == "explained":
                return entry.data
        return None

    def sign_off(self) -> SignOff | None:
        """Return the sign-off that is in force, if there is one."""
        entry = self._signed()
        if entry is None or entry.kind != "signed_off":
            return None
        return SignOff.model_validate(entry.data)

    def lapsed(self) -> TimelineEntry | None:
        """Return the entry that says why the last sign-off is no longer in force, if it is not."""
        entry = self._signed()
        return entry if entry is not None and entry.kind == LAPSED else None

    def vouched(self) -> tuple[TimelineEntry, ...]:
        """Return what the sign-off in force vouches for: what stood on the timeline by then."""
        entry = self._signed()
        if entry is None or entry.kind != "signed_off" or entry.number is None:
            return ()
        return tuple(e for e in self.timeline if (e.number or 0) <= (entry.number or 0))

    def _signed(self) -> TimelineEntry | None:
        said = [e for e in self.timeline if e.kind in ("signed_off", LAPSED)]
        return max(said, key=lambda e: e.number or 0, default=None)


LAPSED = "sign_off_lapsed"
_NOT_CONTENT = frozenset({"elapsed_s", "incident", "model"})
LISTED = [c for c in INCIDENTS.columns if c.name not in ("identity", "record")]


def record(connection: Connection, incident: Incident) -> bool:
    """Store an incident or a further diagnosis of it; return whether anything was new."""
    seen = _lock(connection, incident.id)
    if not seen:
        _insert_incident(connection, incident)
    body = incident.diagnosis.model_dump(mode="json")
    content = _content({k: v for k, v in body.items() if k not in _NOT_CONTENT})
    kept = {**body, "incident": incident.id, "model": None}
    new = _insert_once(connection, DIAGNOSES, incident, content, {"diagnosis": kept})
    snapshot = incident.snapshot.model_dump(mode="json")
    _insert_once(connection, SNAPSHOTS, incident, _content(snapshot), {"body": snapshot})
    if not new:
        return _explained(connection, incident)
    if seen:
        _follow(connection, incident)
        _question(connection, incident)
        to_index(connection, incident.id)
    _insert_nodes(connection, incident)
    for entry in _log_entries(incident):
        append(connection, incident.id, entry)
    append(connection, incident.id, _diagnosed(incident, content, again=seen))
    _explained(connection, incident)
    return True


def failed() -> ColumnElement[bool]:
    """Return the condition of `IncidentRow.failed` for a query over incidents."""
    corrected = and_(
        INCIDENTS.c.confirmed_type.is_not(None),
        INCIDENTS.c.confirmed_type != func.coalesce(INCIDENTS.c.failure_type, ""),
    )
    return or_(
        and_(corrected, INCIDENTS.c.confirmed_type != NO_FAILURE),
        and_(~corrected, INCIDENTS.c.outcome != NO_FAILURE),
    )


def find_id(connection: Connection, text: str) -> str:
    """Return the id that `text` means: a whole id, or the beginning of one with or without INC-.

    Raises:
        UsageError: when no incident, or more than one, begins like that.
    """
    wanted = text.strip().lower().removeprefix("inc-")
    if wanted in ("", "last", "latest"):
        row = connection.execute(
            select(INCIDENTS.c.id).order_by(desc(INCIDENTS.c.recorded_at), desc(INCIDENTS.c.id))
        ).first()
        if row is None:
            raise UsageError(
                "there is no incident yet", subject=text, hint="rerail diagnose PATH_TO_LOGS"
            )
        return str(row[0])
    if not wanted.isalnum():
        raise UsageError(f"{text!r} is no incident id", subject=text, hint="rerail incidents")
    exact = f"INC-{wanted}"
    found = connection.execute(select(INCIDENTS.c.id).where(INCIDENTS.c.id == exact)).all()
    if not found:
        found = connection.execute(
            select(INCIDENTS.c.id).where(INCIDENTS.c.id.like(f"{exact}%")).limit(3)
        ).all()
    if len(found) == 1:
        return str(found[0][0])
    if not found:
        raise UsageError(f"no incident is called {text!r}", subject=text, hint="rerail incidents")
    raise UsageError(
        f"{text!r} may mean {found[0][0]} or {found[1][0]}", subject=text, hint="give more letters"
    )


def load(connection: Connection, text: str) -> IncidentFile:
    """Return everything on one incident.

    Raises:
        UsageError: when no incident has this id.
    """
    name = find_id(connection, text)
    row = connection.execute(select(INCIDENTS).where(INCIDENTS.c.id == name)).one()
    diagnosis = _latest(connection, DIAGNOSES.c.diagnosis, DIAGNOSES, name)
    incident = Incident.model_validate(
        {**row.record, "diagnosis": diagnosis, "snapshot": latest_snapshot(connection, name)}
    )
    return IncidentFile(row_of(row), incident, tuple(timeline(connection, name)))


def diagnosis_of(connection: Connection, name: str) -> Diagnosis:
    """Return the latest diagnosis of an incident, without its lines and its timeline."""
    return Diagnosis.model_validate(_latest(connection, DIAGNOSES.c.diagnosis, DIAGNOSES, name))


def list_incidents(
    connection: Connection,
    *,
    since: str | None = None,
    until: str | None = None,
    failure_type: str | None = None,
    node: str | None = None,
    job: str | None = None,
    signed_off: bool = False,
    confirmed: bool = False,
    healthy: bool = False,
    limit: int = 50,
) -> list[IncidentRow]:
    """Return incidents, the latest first. Times are ISO 8601; they bound when it happened.

    Diagnoses that found no failure are among them only with `healthy`.
    """
    conditions = _conditions(
        since=since, until=until, failure_type=failure_type, node=node, job=job
    )
    if signed_off:
        conditions.append(INCIDENTS.c.signed_off_at.is_not(None))
    if confirmed:
        conditions.append(INCIDENTS.c.confirmed.is_not(None))
    if not healthy:
        conditions.append(failed())
    query = select(*LISTED).where(*conditions).order_by(desc(WHEN), INCIDENTS.c.id).limit(limit)
    return [row_of(row) for row in connection.execute(query)]


def count_healthy(connection: Connection, **filters: str | None) -> int:
    """Count the diagnoses that found no failure; the filters are those of `list_incidents`."""
    query = select(func.count()).select_from(INCIDENTS).where(*_conditions(**filters), ~failed())
    return int(connection.execute(query).scalar() or 0)


WHEN = func.coalesce(INCIDENTS.c.occurred_at, INCIDENTS.c.recorded_at)


def _conditions(
    *,
    since: str | None = None,
    until: str | None = None,
    failure_type: str | None = None,
    node: str | None = None,
    job: str | None = None,
) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    if since is not None:
        found.append(WHEN >= since)
    if until is not None:
        found.append(WHEN < until)
    if failure_type is not None:
        said = func.coalesce(INCIDENTS.c.confirmed_type, INCIDENTS.c.failure_type)
        found.append(said == failure_type)
    if job is not None:
        found.append(INCIDENTS.c.job == job)
    if node is not None:
        accused = select(SUSPECT_NODES.c.incident).where(SUSPECT_NODES.c.node == node)
        found.append(INCIDENTS.c.id.in_(accused))
    return found


def append(connection: Connection, name: str, entry: TimelineEntry) -> int | None:
    """Append a timeline entry; return its number, or None when its key is already there."""
    _lock(connection, name)
    # A note, a scheduler's reason or a tool's message may quote what no log reader has seen.
    entry = entry.model_copy(update={"text": redact(entry.text), "data": redact_all(entry.data)})
    if entry.key is not None:
        known = connection.execute(
            select(TIMELINE.c.number).where(
                TIMELINE.c.incident == name, TIMELINE.c.entry_key == entry.key
            )
        ).first()
        if known is not None:
            return None
    last = connection.execute(
        select(func.max(TIMELINE.c.number)).where(TIMELINE.c.incident == name)
    ).scalar()
    number = (last or 0) + 1
    connection.execute(
        insert(TIMELINE).values(
            incident=name,
            number=number,
            entry_key=entry.key,
            time=entry.time,
            recorded_at=now_iso(),
            source=str(entry.source),
            kind=entry.kind,
            text=entry.text,
            actor=entry.actor,
            evidence=list(entry.evidence),
            data=entry.data,
        )
    )
    return number


def timeline(connection: Connection, name: str) -> list[TimelineEntry]:
    """Return the timeline in the order of time; what has one time stands as it was written."""
    rows = connection.execute(
        select(TIMELINE)
        .where(TIMELINE.c.incident == name)
        .order_by(TIMELINE.c.time, TIMELINE.c.number)
    )
    return [
        TimelineEntry(
            time=row.time,
            source=EntrySource(row.source),
            kind=row.kind,
            text=row.text,
            actor=row.actor,
            evidence=tuple(row.evidence),
            data=row.data,
            key=row.entry_key,
            number=row.number,
            recorded_at=row.recorded_at,
        )
        for row in rows
    ]


def node_history(
    connection: Connection,
    nodes: list[str],
    *,
    cluster: str,
    until: str,
    days: float = 7.0,
    but: str | None = None,
) -> list[NodeEvent]:
    """Return earlier failures that were held against these nodes, the latest first.

    An incident that a person corrected to a cause outside the machine does not count.
    """
    rows = connection.execute(
        select(
            SUSPECT_NODES.c.incident,
            SUSPECT_NODES.c.node,
            SUSPECT_NODES.c.time,
            INCIDENTS.c.failure_type,
            INCIDENTS.c.confirmed_type,
            INCIDENTS.c.confirmed,
            INCIDENTS.c.status,
        )
        .join(INCIDENTS, INCIDENTS.c.id == SUSPECT_NODES.c.incident)
        .where(
            SUSPECT_NODES.c.cluster == cluster,
            SUSPECT_NODES.c.node.in_(nodes),
            SUSPECT_NODES.c.time >= days_before(until, days),
            SUSPECT_NODES.c.time <= until,
            SUSPECT_NODES.c.incident != (but or ""),
            failed(),
        )
        .order_by(desc(SUSPECT_NODES.c.time))
    )
    found: dict[tuple[str, str], NodeEvent] = {}
    for row in rows:
        leaf = leaves().get(row.confirmed_type or row.failure_type or "")
        if clears_machines(row.confirmed, row.confirmed_type or row.failure_type):
            continue
        found.setdefault(
            (row.incident, row.node),
            NodeEvent(
                incident=row.incident,
                node=row.node,
                time=row.time,
                failure_type=leaf.id if leaf else row.failure_type or "unknown",
                status=row.status,
                confirmed=row.confirmed is not None,
            ),
        )
    return list(found.values())


def _lock(connection: Connection, name: str) -> bool:
    """Hold the incident until the transaction ends, and tell whether it exists."""
    query = select(INCIDENTS.c.id).where(INCIDENTS.c.id == name)
    return connection.execute(query.with_for_update()).first() is not None


def _insert_incident(connection: Connection, incident: Incident) -> None:
    values = {
        "id": incident.id,
        "identity": incident.identity,
        "cluster": incident.cluster,
        "job": incident.job.job if incident.job else None,
        "attempt": incident.job.attempt if incident.job else None,
        "recorded_at": incident.recorded_at,
        "record": incident.model_dump(mode="json", exclude={"snapshot"}),
        **_current(incident),
    }
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects.postgresql import insert as insert_or_wait

        # Another writer may insert the same incident at the same moment: wait for it, then go on.
        connection.execute(insert_or_wait(INCIDENTS).values(values).on_conflict_do_nothing())
        _lock(connection, incident.id)
        return
    connection.execute(insert(INCIDENTS).values(values))


def _current(incident: Incident) -> dict[str, Any]:
    diagnosis = incident.diagnosis
    return {
        "occurred_at": incident.occurred_at,
        "outcome": str(diagnosis.outcome),
        "status": str(diagnosis.status),
        "failure_type": diagnosis.failure_type,
        "fingerprint": fingerprint(diagnosis).root,
        "entity": fingerprint(diagnosis).entity,
    }


def _follow(connection: Connection, incident: Incident) -> None:
    connection.execute(
        update(INCIDENTS).where(INCIDENTS.c.id == incident.id).values(**_current(incident))
    )


def _question(connection: Connection, incident: Incident) -> None:
    """A sign-off lapses when the rules come to another cause than the one that was vouched for."""
    row = connection.execute(
        select(INCIDENTS.c.confirmed_type, INCIDENTS.c.signed_off_at).where(
            INCIDENTS.c.id == incident.id
        )
    ).one()
    found = incident.diagnosis.failure_type
    if row.signed_off_at is None or found == row.confirmed_type:
        return
    before = connection.execute(
        select(DIAGNOSES.c.diagnosis)
        .where(DIAGNOSES.c.incident == incident.id)
        .order_by(desc(DIAGNOSES.c.id))
        .limit(2)
    ).scalars()
    if {one.get("failure_type") for one in before} != {found}:
        lapse(connection, incident.id, f"the rules say {found or 'no verdict'} now", now_iso())


def lapse(connection: Connection, name: str, because: str, time: str, *, by: str = "") -> None:
    """End the sign-off of an incident; it is no knowledge until somebody vouches for it anew."""
    append(
        connection,
        name,
        TimelineEntry(
            time=time,
            source=EntrySource.SYSTEM,
            kind=LAPSED,
            text=f"the sign-off is no longer in force; {because}",
            actor=by,
        ),
    )
    connection.execute(update(INCIDENTS).where(INCIDENTS.c.id == name).values(signed_off_at=None))
    to_index(connection, name)


def to_index(connection: Connection, name: str) -> None:
    """Have an incident looked at before the next search: it may be found now, or otherwise, or not."""
    known = connection.execute(
        select(DOCUMENT_QUEUE.c.incident).where(DOCUMENT_QUEUE.c.incident == name)
    ).first()
    if known is None:
        connection.execute(insert(DOCUMENT_QUEUE).values(incident=name))


def _insert_once(
    connection: Connection, table: Any, incident: Incident, content: str, values: dict[str, Any]
) -> bool:
    known = connection.execute(
        select(table.c.id).where(table.c.incident == incident.id, table.c.content == content)
    ).first()
    if known is not None:
        return False
    connection.execute(
        insert(table).values(
            incident=incident.id, content=content, recorded_at=incident.recorded_at, **values
        )
    )
    return True


def _insert_nodes(connection: Connection, incident: Incident) -> None:
    diagnosis = incident.diagnosis
    for node in diagnosis.suspects.nodes:
        known = connection.execute(
            select(SUSPECT_NODES.c.id).where(
                SUSPECT_NODES.c.incident == incident.id,
                SUSPECT_NODES.c.node == node,
                SUSPECT_NODES.c.failure_type == (diagnosis.failure_type or "unknown"),
            )
        ).first()
        if known is None:
            connection.execute(
                insert(SUSPECT_NODES).values(
                    incident=incident.id,
                    cluster=incident.cluster,
                    node=node,
                    time=incident.occurred_at or incident.recorded_at,
                    failure_type=diagnosis.failure_type or "unknown",
                    status=str(diagnosis.status),
                )
            )


def _log_entries(incident: Incident) -> list[TimelineEntry]:
    """What the logs say with a time: the cited lines, each once."""
    entries = []
    for item in incident.diagnosis.evidence:
        if item.time is not None:
            where = f"rank {item.rank}: " if item.rank is not None else ""
            entries.append(
                TimelineEntry(
                    time=item.time,
                    source=EntrySource.LOG,
                    kind=item.role,
                    text=f"{where}{item.text[:300]}",
                    evidence=(f"{item.file}:{item.line}",),
                    key=_key(f"line:{item.file}:{item.line}"),
                )
            )
    return entries


def _diagnosed(incident: Incident, content: str, *, again: bool) -> TimelineEntry:
    diagnosis = incident.diagnosis
    return TimelineEntry(
        time=incident.recorded_at,
        source=EntrySource.RULES,
        kind="diagnosed_again" if again else "diagnosed",
        text=f"{diagnosis.summary} ({diagnosis.status})",
        evidence=tuple(e.id for e in diagnosis.evidence if e.role == "initiating"),
        data={"rules": incident.rules_version},
        key=_key(f"diagnosis:{content}"),
    )


def _explained(connection: Connection, incident: Incident) -> bool:
    """Write down what a model said; the verdict of the rules stays what it is."""
    said = incident.diagnosis.model
    if not said:
        return False
    entry = TimelineEntry(
        time=now_iso(),
        source=EntrySource.MODEL,
        kind="explained",
        text=f"{said.get('stand', '')}: {said.get('summary', '')}"[:800],
        actor=str(said.get("name", "")),
        data=said,
        key=_key("model:" + _content({k: v for k, v in said.items() if k != "seconds"})),
    )
    return append(connection, incident.id, entry) is not None


def _latest(connection: Connection, column: Any, table: Any, name: str) -> Any:
    return connection.execute(
        select(column).where(table.c.incident == name).order_by(desc(table.c.id)).limit(1)
    ).scalar()


def row_of(row: Row[Any]) -> IncidentRow:
    """Return a row of the table as a list shows it."""
    return IncidentRow(**{c.name: getattr(row, c.name) for c in LISTED})


def _content(body: Any) -> str:
    return sha256(json.dumps(body, sort_keys=True, default=str).encode()).hexdigest()


def _key(text: str) -> str:
    return text if len(text) <= 120 else sha256(text.encode()).hexdigest()
