"""The body of `rerail plans`: which plans there are, and how their steps stand."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from pydantic import ValidationError

from rerail.domain.plan import ActionState, RecoveryPlan
from rerail.errors import RecoveryError
from rerail.knowledge_base.store.engine import reading
from rerail.knowledge_base.store.opened import opened_store
from rerail.recovery.executor import TELLING
from rerail.recovery.store import plans

OPEN = (
    *(ActionState.PROPOSED, ActionState.APPROVED, ActionState.EXECUTING),
    *(ActionState.UNKNOWN, ActionState.VERIFYING),
)


def plans_command(limit: int, *, open_only: bool, json_output: bool) -> int:
    """Print plans, the newest first; exit code 0."""
    shown = []
    with opened_store() as engine, reading(engine) as connection:
        for row in plans.latest(connection, limit if not open_only else 10_000):
            try:
                plan = RecoveryPlan.model_validate(row.body)
                steps = plans.states(connection, plan)
            except (ValidationError, RecoveryError):
                shown.append({"plan": row.id, "altered": True})
                continue
            acting = [one for one in steps if one.action.kind not in TELLING]
            if open_only and not any(one.state in OPEN for one in acting):
                continue
            shown.append(
                {
                    "plan": plan.id,
                    "incident": plan.incident,
                    "job": plan.job.key,
                    "rule": plan.rule,
                    "mode": str(plan.mode),
                    "made": datetime.fromtimestamp(plan.made_at, UTC).isoformat(timespec="seconds"),
                    "steps": [
                        {
                            "step": one.action.step,
                            "kind": str(one.action.kind),
                            "target": one.action.target,
                            "state": str(one.state),
                            "note": one.note,
                        }
                        for one in steps
                    ],
                    "refused": list(plan.refusals),
                }
            )
    shown = shown[:limit]
    if json_output:
        print(json.dumps(shown, indent=1))
        return 0
    for one in shown:
        if one.get("altered"):
            print(f"{one['plan']}  ALTERED after it was made: it is never executed")
            continue
        print(f"{one['plan']}  {one['made']}  {one['incident']}  job {one['job']}  {one['mode']}")
        for step in one["steps"]:
            what = f"{step['step']} {step['kind']} {step['target']}".rstrip()
            note = f" ({step['note']})" if step["note"] else ""
            print(f"    {what}: {step['state']}{note}")
        for why in one["refused"]:
            print(f"    refused: {why}")
    if not shown:
        print("no plan is open" if open_only else "no plan was made yet")
    return 0
