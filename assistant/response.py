"""What recovery did about an incident, as timeline entries; read from the audit log, never copied.

The audit log is the one record of approvals and actions. It is joined to the timeline when that is
shown, so that the two cannot disagree.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlalchemy import Connection

from rerail.domain.incident import EntrySource, TimelineEntry
from rerail.knowledge_base.store.incidents import IncidentFile, load
from rerail.recovery.store import audit, plans

_MOST = 400
# The person's own entry (step_approved, step_rejected) says it better.
_SAID_TWICE = frozenset({"action_proposed", "action_approved", "action_rejected"})


def load_whole(connection: Connection, name: str) -> IncidentFile:
    """Return an incident with what recovery did about it in its timeline.

    Raises:
        UsageError: when no incident has this id.
    """
    file = load(connection, name)
    found = response_entries(connection, file.row.id)
    if not found:
        return file
    kept = [one for one in file.timeline if not _said_by_the_audit_log(one)]
    merged = sorted([*kept, *found], key=lambda e: e.time)
    return replace(file, timeline=tuple(merged))


def _said_by_the_audit_log(entry: TimelineEntry) -> bool:
    """Tell whether an entry notes a plan, or the state of a step, and nothing more."""
    if entry.source is not EntrySource.RECOVERY or "plan" not in entry.data:
        return False
    return {"step", "state"} <= entry.data.keys() or (entry.kind == "plan" and not entry.data.get("note"))  # fmt: skip


def response_entries(connection: Connection, incident: str) -> list[TimelineEntry]:
    """Return the audit entries of the plans of an incident."""
    entries = []
    for plan in plans.of_incident(connection, incident):
        kinds = {action.step: f"{action.kind} {action.target}".strip() for action in plan.actions}
        for row in audit.entries(connection, plan.id, _MOST):
            if row.what in _SAID_TWICE:
                continue
            _, _, step = str(row.subject).partition("/")
            what = kinds.get(int(step)) if step.isdigit() else None
            entries.append(_entry(row, plan.id, plan.digest, step, what))
    return entries


def _entry(row: Any, plan: str, digest: str, step: str, what: str | None) -> TimelineEntry:
    body = row.body or {}
    if row.what == "plan_made":
        steps = "; ".join(body.get("actions", [])) or "no action"
        text = f"plan {plan} by rule {body.get('rule')} ({body.get('mode')}): {steps}"
        if body.get("refusals"):
            text += f"; refused: {'; '.join(body['refusals'])}"
    else:
        word = str(row.what).removeprefix("step_").removeprefix("action_").replace("_", " ")
        text = f"step {step} of {plan}, {what or body.get('target', '')}: {word}"
        if body.get("note"):
            text += f" ({body['note']})"
    return TimelineEntry(
        time=row.time,
        source=EntrySource.RECOVERY,
        kind=str(row.what),
        text=text,
        actor=str(row.actor),
        data={"audit": row.number, "plan": plan, "digest": digest},
    )


def what_was_done(file: IncidentFile) -> list[str]:
    """Return where each step of recovery that changes something stands, in the order of the steps."""
    latest: dict[str, str] = {}
    for entry in file.timeline:
        step, _, rest = entry.text.partition(", ")
        if entry.kind.startswith("action_") and "audit" in entry.data:
            latest.pop(step, None)
            if not rest.startswith(("notify", "ticket")):
                latest[step] = rest
    return [f"{rest}   [{step}]" for step, rest in latest.items()]
