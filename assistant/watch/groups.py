"""Folds incidents that share a root (switch, rack, file system, node) into one parent incident."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, func, insert, select

from rerail.domain.diagnosis import Action as Recommended
from rerail.domain.diagnosis import Diagnosis, Outcome, Recovery, Status
from rerail.domain.incident import EntrySource, Incident, TimelineEntry
from rerail.knowledge_base.fingerprint import fingerprint, incident_id
from rerail.knowledge_base.store.clock import now_iso
from rerail.knowledge_base.store.incidents import append, record
from rerail.recovery.site_policy import SitePolicy
from rerail.recovery.store.tables import GROUPS

LEAST_MEMBERS = 3
WINDOW_S = 900.0
SHARED = {"storage": "shared file system", "network": "fabric", "scheduler": "scheduler"}


def root_of(
    diagnosis: Diagnosis, nodes: Sequence[str], lost: Sequence[str], policy: SitePolicy
) -> str:
    """Return what a failure has in common with others of the moment, or an empty string.

    A root of the policy counts where it holds every accused node, or all nodes of the job when
    none is accused; then a lost node itself; then a category of shared services.
    """
    accused = set(lost) or set(diagnosis.suspects.nodes) & set(nodes)
    for name, members in policy.roots.items():
        inside = set(members)
        if (accused and accused <= inside) or (not accused and nodes and set(nodes) <= inside):
            return name
    if lost:
        return f"node {sorted(lost)[0]}"
    return SHARED.get(diagnosis.category or "", "")


def join(
    connection: Connection, incident: Incident, root: str, now: float
) -> tuple[str | None, int, bool]:
    """Count an incident under its root; return parent id, members and whether it is a new parent.

    The parent exists from the third incident of one root within a quarter of an hour.
    """
    if not root:
        return None, 0, False
    window = GROUPS.c.joined_at >= now - WINDOW_S
    same = (GROUPS.c.root == root) & window
    members = connection.execute(
        select(GROUPS.c.incident, GROUPS.c.parent).where(same).order_by(GROUPS.c.joined_at)
    ).all()
    known = {str(row.incident) for row in members}
    if members:
        parent = str(members[0].parent)
    else:
        parent = incident_id(f"root/{incident.cluster}/{root}/{int(now)}")
    if incident.id not in known:
        connection.execute(
            insert(GROUPS).values(incident=incident.id, parent=parent, root=root, joined_at=now)
        )
        known.add(incident.id)
    if len(known) < LEAST_MEMBERS:
        return None, len(known), False
    created = len(known) == LEAST_MEMBERS
    if created:
        _create_parent(connection, incident, parent, root)
        for name in sorted(known):
            _mention(connection, parent, name, root)
    else:
        _mention(connection, parent, incident.id, root)
    return parent, len(known), created


def _create_parent(connection: Connection, first: Incident, parent: str, root: str) -> None:
    diagnosis = Diagnosis(
        outcome=Outcome.FAILURE,
        status=Status.SUPPORTED,
        failure_type=first.diagnosis.failure_type,
        category=first.diagnosis.category,
        layer=first.diagnosis.layer,
        summary=f"Several jobs failed at once and share one root: {root}.",
        first_fault=None,
        recovery=Recovery(action=Recommended.PAGE_HUMAN, reason=f"look at {root} first"),
        incident=parent,
    )
    record(
        connection,
        Incident(
            id=parent,
            identity=f"root/{first.cluster}/{root}/{parent}",
            cluster=first.cluster,
            recorded_at=now_iso(),
            occurred_at=first.occurred_at,
            diagnosis=diagnosis,
            fingerprint=fingerprint(diagnosis),
            rules_version=first.rules_version,
        ),
    )


def _mention(connection: Connection, parent: str, child: str, root: str) -> None:
    for here, there, kind in ((parent, child, "member"), (child, parent, "part_of")):
        append(
            connection,
            here,
            TimelineEntry(
                time=now_iso(),
                source=EntrySource.SYSTEM,
                kind=kind,
                text=f"{there} shares {root}",
                data={"incident": there, "root": root},
                key=f"{kind}:{there}",
            ),
        )


def members(connection: Connection, parent: str) -> list[str]:
    """Return the incidents of a parent."""
    rows = connection.execute(
        select(GROUPS.c.incident).where(GROUPS.c.parent == parent).order_by(GROUPS.c.joined_at)
    )
    return [str(row.incident) for row in rows]


def parents(connection: Connection) -> dict[str, int]:
    """Return every parent that exists with the number of its members."""
    rows = connection.execute(select(GROUPS.c.parent, func.count()).group_by(GROUPS.c.parent))
    return {str(name): int(count) for name, count in rows if count >= LEAST_MEMBERS}
