"""The line in an incident's timeline that tells of a plan, the same however the plan came about."""

from __future__ import annotations

from sqlalchemy import Connection

from rerail.domain.incident import EntrySource, TimelineEntry
from rerail.domain.plan import RecoveryPlan
from rerail.knowledge_base.store.clock import now_iso
from rerail.knowledge_base.store.incidents import append


def note_plan(connection: Connection, plan: RecoveryPlan, note: str = "") -> None:
    """Append to the incident of a plan what the plan would do, and `note` behind it."""
    steps = ", ".join(f"{one.step} {one.kind} {one.target}".strip() for one in plan.actions)
    append(
        connection,
        plan.incident,
        TimelineEntry(
            time=now_iso(),
            source=EntrySource.RECOVERY,
            kind="plan",
            text=f"{plan.id}: {steps or 'nothing to do'}{note}",
            data={
                "plan": plan.id,
                "digest": plan.digest,
                "refusals": list(plan.refusals),
                "note": note.strip(),
            },
            key=f"plan:{plan.id}",
        ),
    )
