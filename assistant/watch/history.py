"""What the store knows of a job, its nodes and this hour, as the policy wants it."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256

from sqlalchemy import Connection, func, select

from rerail.domain.diagnosis import Diagnosis
from rerail.domain.job import JobRef
from rerail.domain.plan import ActionKind
from rerail.knowledge_base.store.clock import to_iso
from rerail.knowledge_base.store.incidents import node_history
from rerail.knowledge_base.store.tables import SUSPECT_NODES
from rerail.recovery.site_policy import SitePolicy
from rerail.recovery.situation import History, accused_nodes
from rerail.recovery.store import control, plans


def note_progress(connection: Connection, job: JobRef, step: int | None) -> list[int | None]:
    """Keep how far an attempt came; return the steps of all attempts known, oldest first."""
    # The column holds 64 characters; names of Kubernetes jobs are longer.
    key = "progress/" + sha256(f"{job.cluster}\0{job.job}".encode()).hexdigest()[:40]
    known: dict[str, int | None] = control.get(connection, key) or {}
    known[str(job.attempt)] = step
    control.put(connection, key, known)
    return [known[name] for name in sorted(known, key=int)]


def without_progress(steps: list[int | None]) -> int:
    """Return how many of the latest restarts in a row did not come further than before.

    The first attempt is no restart. An attempt that reported no step made no progress.
    """
    best, run = -1, 0
    for place, step in enumerate(steps):
        came = -1 if step is None else step
        if place > 0:
            run = run + 1 if came <= best else 0
        best = max(best, came)
    return run


def history_of(
    connection: Connection,
    job: JobRef,
    incident: str,
    diagnosis: Diagnosis,
    steps: list[int | None],
    policy: SitePolicy,
    now: float,
) -> History:
    """Return the history of one situation."""
    drained = plans.carried_out_since(
        connection, now - 3600.0, kind=ActionKind.DRAIN, cluster=job.cluster
    )
    window = policy.breaker.window_s
    nodes = 0
    if diagnosis.failure_type is not None and diagnosis.suspects.nodes:
        since = to_iso(datetime.fromtimestamp(now - window, UTC))
        query = select(func.count(func.distinct(SUSPECT_NODES.c.node))).where(
            SUSPECT_NODES.c.cluster == job.cluster,
            SUSPECT_NODES.c.failure_type == diagnosis.failure_type,
            SUSPECT_NODES.c.time >= since,
        )
        nodes = int(connection.execute(query).scalar() or 0)
    repeats = policy.repeats.window_days
    held: dict[str, set[str]] = {}
    if accused := accused_nodes(diagnosis):
        until = to_iso(datetime.fromtimestamp(now, UTC))
        for one in node_history(
            *(connection, accused), cluster=job.cluster, until=until, days=repeats, but=incident
        ):
            held.setdefault(one.node, set()).add(one.incident)
    return History(
        restarts=job.attempt,
        restarts_without_progress=without_progress(steps),
        plans_for_incident=plans.count_for(connection, incident),
        nodes_drained_last_hour=tuple(dict.fromkeys(target for _, target in drained)),
        nodes_same_finding=nodes,
        actions_in_window=len(plans.carried_out_since(connection, now - window)),
        breaker_open=bool(control.breaker_reason(connection)),
        node_failures={node: len(incidents) for node, incidents in held.items()},
    )
