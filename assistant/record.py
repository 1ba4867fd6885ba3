"""Turns a diagnosis into an incident, keeps it, and reads what is known of its nodes.

Nothing here may fail a diagnosis: what cannot be kept or read is a sentence for the user.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from rerail.assistant.pipeline import Outcome, rules
from rerail.assistant.snapshot import take_snapshot
from rerail.domain.diagnosis import NodeHistory, PastFailure
from rerail.domain.incident import Incident, NodeEvent
from rerail.domain.job import JobRef
from rerail.errors import RerailError
from rerail.knowledge_base.causality.diagnosis_record import iso
from rerail.knowledge_base.fingerprint import (
    evidence_identity,
    fingerprint,
    incident_id,
    job_identity,
)
from rerail.knowledge_base.store.clock import now_iso
from rerail.knowledge_base.store.inbox import submit
from rerail.late_dataclass import dataclass
from rerail.log_parsers.redaction import redact
from rerail.settings import load_settings

HISTORY_DAYS = 7.0


@dataclass(frozen=True, slots=True)
class Recorded:
    """The diagnosis as it was kept, the incident if there is one, and what went wrong on the way."""

    outcome: Outcome
    incident: Incident | None = None
    banners: tuple[str, ...] = ()


def record_outcome(
    outcome: Outcome,
    paths: Iterable[str | Path],
    *,
    job: str | None = None,
    attempt: int | None = None,
    history: bool = True,
) -> Recorded:
    """Keep an outcome as an incident; never raises RerailError.

    One without a failure is kept as well, so that it can be found and corrected.

    Args:
        outcome: what the pipeline returned.
        paths: what the user named, to find the logs again.
        job: the job's id; without it the content of the logs is the identity.
        attempt: which start of the job, from 0; None takes the last one that the logs show.
        history: read earlier failures of the accused nodes, if there is a store.
    """
    banners: list[str] = []
    incident = make_incident(outcome, paths, job=job, attempt=attempt)
    if history and outcome.diagnosis.suspects.nodes:
        try:
            incident = _with_history(incident)
        except RerailError as error:
            banners.append(f"node history is not to be had: {error.message}")
    try:
        submit(incident)
    except RerailError as error:
        banners.append(f"not stored: {error.message} ({error.hint})")
        bare = incident.diagnosis.model_copy(update={"incident": None})
        return Recorded(replace(outcome, diagnosis=bare), None, tuple(banners))
    return Recorded(replace(outcome, diagnosis=incident.diagnosis), incident, tuple(banners))


def make_incident(
    outcome: Outcome,
    paths: Iterable[str | Path],
    *,
    job: str | None = None,
    attempt: int | None = None,
) -> Incident:
    """Return the incident of an outcome, without keeping it."""
    cluster = load_settings().cluster
    snapshot = take_snapshot(outcome)
    reference = None
    if job:
        starts = [a.number for a in outcome.diagnosis.attempts]
        last = attempt if attempt is not None else max(starts, default=0)
        reference = JobRef(cluster=cluster, job=redact(job), attempt=last)
    identity = job_identity(reference) if reference else evidence_identity(snapshot.sources)
    name = incident_id(identity)
    diagnosis = outcome.diagnosis.model_copy(update={"incident": name})
    return Incident(
        id=name,
        identity=identity,
        cluster=cluster,
        job=reference,
        recorded_at=now_iso(),
        occurred_at=_occurred_at(outcome),
        diagnosis=diagnosis,
        fingerprint=fingerprint(diagnosis),
        snapshot=snapshot,
        paths=tuple("-" if str(p) == "-" else redact(str(Path(p).absolute())) for p in paths),
        rules_version=rules_version(),
    )


def _occurred_at(outcome: Outcome) -> str | None:
    """The time of the first fault, or of the nearest stamped line above it; without one, of the end."""
    verdict = outcome.verdict
    line = verdict.line
    if line is None and verdict.observation is not None:
        line = verdict.observation.line
    if line is None and verdict.last is not None:
        line = verdict.last.line
    return iso(outcome.case.near_time(line)) if line is not None else None


@lru_cache(maxsize=1)
def rules_version() -> str:
    """Return a short hash of all rules in force: two diagnoses with one hash used the same rules."""
    body = "\n".join(f"{r.id} {r.pattern} {r.role} {r.leaf} {r.priority}" for r in rules().rules)
    return sha256(body.encode()).hexdigest()[:12]


def _with_history(incident: Incident) -> Incident:
    from rerail.knowledge_base.store.engine import store_exists
    from rerail.knowledge_base.store.inbox import pending

    if not store_exists() and not pending():
        return incident
    # The database layer is imported here only: most diagnoses accuse no node.
    from rerail.knowledge_base.store.engine import open_store, reading
    from rerail.knowledge_base.store.inbox import ingest
    from rerail.knowledge_base.store.incidents import node_history

    engine = open_store()
    try:
        ingest(engine)
        with reading(engine) as connection:
            found = node_history(
                connection,
                list(incident.diagnosis.suspects.nodes),
                cluster=incident.cluster,
                until=incident.occurred_at or incident.recorded_at,
                days=HISTORY_DAYS,
                but=incident.id,
            )
    finally:
        engine.dispose()
    return with_history(incident, found)


def with_history(incident: Incident, found: list[NodeEvent]) -> Incident:
    """Return the incident with what is known of its nodes written into the diagnosis."""
    if not found:
        return incident
    history = []
    for node in dict.fromkeys(event.node for event in found):
        past = [
            PastFailure(incident=e.incident, time=e.time, failure_type=e.failure_type)
            for e in found
            if e.node == node
        ]
        history.append(
            NodeHistory(
                node=node,
                days=HISTORY_DAYS,
                failures=past,
                says=f"{_ordinal(len(past) + 1)} failure of {node} in {HISTORY_DAYS:g} days",
            )
        )
    recovery = incident.diagnosis.recovery
    said = "; ".join(h.says for h in history)
    reason = f"{recovery.reason}; {said}" if recovery.reason else said
    diagnosis = incident.diagnosis.model_copy(
        update={
            "history": history,
            "recovery": recovery.model_copy(update={"reason": reason}),
        }
    )
    return incident.model_copy(update={"diagnosis": diagnosis})


def _ordinal(number: int) -> str:
    words = ("", "first", "second", "third", "fourth", "fifth", "sixth", "seventh")
    return words[number] if number < len(words) else f"{number}th"
