"""Tells people: a file of JSON lines and a command of the site; a failure to tell stops nothing."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from rerail.domain.plan import PlannedAction, RecoveryPlan
from rerail.errors import ClusterError
from rerail.recovery.site_policy import Notify


def message(plan: RecoveryPlan, action: PlannedAction, **more: Any) -> dict[str, Any]:
    """Return the message of a notification or ticket; log text in it is quoted data only."""
    return {
        "kind": str(action.kind),
        "incident": plan.incident,
        "plan": plan.id,
        "job": plan.job.key,
        "text": action.because,
        "urgent": bool(action.parameters.get("urgent")),
        "to": action.parameters.get("to", "operators"),
        "nodes": action.parameters.get("nodes", []),
        "steps": [f"{one.step} {one.kind} {one.target}".strip() for one in plan.actions],
        "refused": list(plan.refusals),
        "next": f"rerail plan {plan.id}",
        **more,
    }


def send(content: dict[str, Any], target: Notify) -> None:
    """Write the message where the policy says.

    Raises:
        ClusterError: It could not be delivered; recoverable.
    """
    line = json.dumps(content, sort_keys=True) + "\n"
    try:
        if target.file:
            path = Path(target.file).expanduser()
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as out:
                out.write(line)
        if target.command:
            subprocess.run(
                target.command, input=line, text=True, check=True, capture_output=True, timeout=20
            )
    except (OSError, subprocess.SubprocessError) as error:
        raise ClusterError(
            f"the message was not delivered: {error}",
            subject="notify",
            hint="notify.file and notify.command in the policy file",
            recoverable=True,
        ) from None
