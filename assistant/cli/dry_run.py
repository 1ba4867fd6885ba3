"""The body of `rerail approve --dry-run`: a step is read, asked and shown, and not done."""

from __future__ import annotations

import time

from sqlalchemy import Engine

from rerail.assistant.cli.step_card import decision_lines
from rerail.assistant.presentation.plan import PlanView, StepView, plan_view
from rerail.assistant.presentation.step_facts import load_plan
from rerail.assistant.watch.site import Site
from rerail.domain.incident import EntrySource, TimelineEntry
from rerail.domain.plan import ActionState
from rerail.errors import RecoveryError
from rerail.knowledge_base.store.clock import now_iso
from rerail.knowledge_base.store.engine import writing
from rerail.knowledge_base.store.incidents import append
from rerail.knowledge_base.store.opened import opened_store
from rerail.recovery.executor import TELLING
from rerail.recovery.rehearsal import Rehearsal, rehearse
from rerail.recovery.store.plans import ActionRow

OPEN = (ActionState.PROPOSED, ActionState.APPROVED)


def dry_run_command(site: Site, name: str, *, step: int | None, by: str) -> int:
    """Try the open steps of a plan, or one, without effect; 0 if each would be done now.

    Raises:
        RecoveryError: The plan or step does not exist, or the plan is not this site's.
    """
    with opened_store() as engine:
        plan, rows = load_plan(engine, name)
        if step is None:
            asked = [r for r in rows if r.state in OPEN and r.action.kind not in TELLING]
        else:
            asked = [row for row in rows if row.action.step == step]
        if step is not None and not asked:
            raise RecoveryError(
                f"plan {plan.id} has no step {step}",
                subject=plan.id,
                hint=f"rerail plan {plan.id}",
            )
        if not asked:
            print(f"{plan.id}: no step is open")
        view = plan_view(site, engine, plan, asked)
        would = [
            _try_one(site, engine, row, view, step, by)
            for row, step in zip(asked, view.steps, strict=True)
        ]
    return 0 if all(would) else 1


def _try_one(
    site: Site, engine: Engine, row: ActionRow, view: PlanView, step: StepView, by: str
) -> bool:
    action, plan = row.action, row.plan
    print("\n".join(decision_lines(view, step)))
    found = rehearse(site.executor(engine), row, time.time())
    said = _result(found)
    print(f"  dry run   {said}; nothing was done")
    if not found.hindrance and action.needs_approval:
        print(f"  next      rerail approve {plan.id} --step {action.step}")
    with writing(engine) as connection:
        append(
            connection,
            plan.incident,
            TimelineEntry(
                time=now_iso(),
                source=EntrySource.RECOVERY,
                kind="dry_run",
                text=f"{plan.id} step {action.step}, {action.kind} {action.target}: dry run: {said}",
                actor=by,
                data={
                    "plan": plan.id,
                    "step": action.step,
                    "digest": plan.digest,
                    "would_be_done": not found.hindrance,
                    "commands": list(step.commands),
                    "touches": step.touches,
                },
            ),
        )
    return not found.hindrance


def _result(found: Rehearsal) -> str:
    if not found.hindrance:
        return f"would be done now ({found.said})"
    said = f" ({found.said})" if found.said else ""
    return f"would not be done now: {found.hindrance}{said}"
