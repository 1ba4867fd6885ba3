"""Candidates in the store: proposed, in the shadow with their support, accepted or rejected."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, insert, select, update

from rerail.domain.incident import Incident
from rerail.errors import UsageError
from rerail.knowledge_base.learning.candidate import LEAST_SUPPORT, Candidate, State
from rerail.knowledge_base.store.clock import now_iso
from rerail.knowledge_base.store.tables import INCIDENTS, RULE_CANDIDATES, RULE_SUPPORT
from rerail.log_parsers.masks import is_protected


@dataclass(frozen=True, slots=True)
class Shelved:
    """A candidate with what happened to it in the shadow: incidents for and against it."""

    candidate: Candidate
    state: State
    support: tuple[str, ...]
    against: tuple[str, ...]
    recorded_at: str

    @property
    def ready(self) -> bool:
        """Tell whether a person may accept it: enough incidents for it, none against."""
        return len(self.support) >= LEAST_SUPPORT and not self.against


def put(connection: Connection, candidate: Candidate) -> bool:
    """Put a candidate into the shadow; return False when it is known already."""
    known = connection.execute(
        select(RULE_CANDIDATES.c.id).where(RULE_CANDIDATES.c.id == candidate.id)
    ).first()
    if known is not None:
        return False
    connection.execute(
        insert(RULE_CANDIDATES).values(
            id=candidate.id,
            kind=candidate.kind,
            state=str(State.SHADOW),
            recorded_at=now_iso(),
            body=candidate.model_dump(mode="json"),
        )
    )
    return True


def shelved(connection: Connection, *states: State) -> list[Shelved]:
    """Return candidates, those with most support first."""
    query = select(RULE_CANDIDATES)
    if states:
        query = query.where(RULE_CANDIDATES.c.state.in_([str(s) for s in states]))
    found = []
    for row in connection.execute(query.order_by(RULE_CANDIDATES.c.recorded_at)):
        candidate = Candidate.model_validate(row.body)
        words = _witnesses(connection, candidate)
        found.append(
            Shelved(
                candidate,
                State(row.state),
                tuple(name for name, verdict in words if verdict == "for"),
                tuple(name for name, verdict in words if verdict == "against"),
                row.recorded_at,
            )
        )
    return sorted(found, key=lambda s: (-len(s.support), s.candidate.id))


def _witnesses(connection: Connection, candidate: Candidate) -> list[tuple[str, str]]:
    """Return (incident, for or against): a rule's by what people call the incident today.

    What was matched does not change, but a person may correct an incident later, also the one that
    the rule was made from.
    """
    query = select(RULE_SUPPORT.c.incident, RULE_SUPPORT.c.verdict, INCIDENTS.c.confirmed_type)
    rows = connection.execute(
        query.join(INCIDENTS, INCIDENTS.c.id == RULE_SUPPORT.c.incident, isouter=True).where(
            RULE_SUPPORT.c.candidate == candidate.id
        )
    ).all()
    if candidate.kind == "filter":
        return [(row.incident, row.verdict) for row in rows]
    found = []
    for row in rows:
        called = row.confirmed_type
        verdict = (
            row.verdict if called is None else "for" if called == candidate.leaf else "against"
        )
        found.append((row.incident, verdict))
    origin = connection.execute(
        select(INCIDENTS.c.confirmed_type).where(INCIDENTS.c.id == candidate.incident)
    ).scalar()
    if origin is not None and origin != candidate.leaf:
        found.append((candidate.incident, "against"))
    return found


def observe(connection: Connection, incident: Incident, true_type: str | None) -> list[str]:
    """Let the candidates in the shadow look at a confirmed incident; return those that matched.

    A match on an incident of their failure type is support, on any other it speaks against them. A
    filter is supported by routine lines that it would hide; one line of the evidence speaks against.
    """
    matched = []
    for one in shelved(connection, State.SHADOW):
        candidate = one.candidate
        # The incident that it was made from is no witness for it.
        known = (candidate.incident, *one.support, *one.against)
        if incident.id in known:
            continue
        look = _seen_by_filter if candidate.kind == "filter" else _seen_by_rule
        verdict = look(candidate, incident, true_type)
        if verdict is None:
            continue
        connection.execute(
            insert(RULE_SUPPORT).values(
                candidate=candidate.id,
                incident=incident.id,
                recorded_at=now_iso(),
                verdict=verdict,
            )
        )
        matched.append(candidate.id)
    return matched


def _seen_by_rule(candidate: Candidate, incident: Incident, true_type: str | None) -> str | None:
    pattern = re.compile(candidate.pattern)
    if not any(pattern.search(line.text) for line in incident.snapshot.lines):
        return None
    return "for" if true_type == candidate.leaf else "against"


def _seen_by_filter(candidate: Candidate, incident: Incident, _: str | None) -> str | None:
    pattern = re.compile(candidate.pattern)
    diagnosis = incident.diagnosis
    told = [e.text for e in diagnosis.evidence if e.role != "context"]
    told += [line.text for line in incident.snapshot.lines if is_protected(line.text)]
    told += [diagnosis.first_fault.text] if diagnosis.first_fault is not None else []
    if any(pattern.search(text) for text in told):
        return "against"
    routine = [t.sample or t.text for t in incident.snapshot.templates if not is_protected(t.text)]
    return "for" if any(pattern.search(text) for text in routine) else None


def observe_all(connection: Connection, incidents: Iterable[tuple[Incident, str | None]]) -> None:
    """Let the shadow look at all confirmed incidents, to fill in what a new candidate missed."""
    for incident, true_type in incidents:
        observe(connection, incident, true_type)


def decide(
    connection: Connection, name: str, *, accept: bool, by: str, force: bool = False
) -> Shelved:
    """Write down a person's decision on a candidate; one that was accepted can be rejected later.

    Raises:
        UsageError: for an unknown or decided candidate, or one without enough support.
    """
    found = next((s for s in shelved(connection) if s.candidate.id == name), None)
    if found is None:
        raise UsageError(f"no candidate is called {name!r}", subject=name, hint="rerail kb review")
    withdrawn = found.state is State.ACCEPTED and not accept
    if found.state is not State.SHADOW and not withdrawn:
        raise UsageError(f"{name} was {found.state} already", subject=name, hint="rerail kb review")
    if accept and not found.ready and not force:
        raise UsageError(
            f"{name} has {len(found.support)} incidents for it and {len(found.against)} against; "
            f"it needs {LEAST_SUPPORT} and 0",
            subject=name,
            hint="wait for more incidents, or --force with your name on it",
        )
    state = State.ACCEPTED if accept else State.REJECTED
    connection.execute(
        update(RULE_CANDIDATES)
        .where(RULE_CANDIDATES.c.id == name)
        .values(state=str(state), decided_at=now_iso(), decided_by=by)
    )
    return found
