"""Tells people: a file of JSON lines and a command of the site; a failure to tell stops nothing."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from rerail.domain.plan import ActionState, PlannedAction, RecoveryPlan
from rerail.errors import ClusterError
from rerail.log_parsers.redaction import redact, redact_all
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


def step_message(
    plan: RecoveryPlan, action: PlannedAction, state: ActionState, note: str
) -> dict[str, Any]:
    """Return the message that a step of a plan failed, was refused, or is unknown."""
    what = f"step {action.step} of {plan.id}, {action.kind} {action.target}".rstrip()
    words = {
        ActionState.FAILED: "was not done or has failed",
        ActionState.UNKNOWN: "was interrupted: whether it happened is looked at now",
        ActionState.EXPIRED: "was not begun in time",
    }
    return {
        **message(plan, action),
        "kind": f"step_{state}",
        "step": action.step,
        "text": f"{what} {words.get(state, str(state))}: {note}",
        "urgent": state is not ActionState.UNKNOWN,
        "to": "operators",
    }


def send(content: dict[str, Any], target: Notify) -> None:
    """Write the message where the policy says, its secrets masked: it quotes logs and commands.

    Raises:
        ClusterError: It could not be delivered; recoverable.
    """
    line = json.dumps(redact_all(content), sort_keys=True) + "\n"
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
            f"the message was not delivered: {_why(error, target)}",
            subject="notify",
            hint="notify.file and notify.command in the policy file",
            recoverable=True,
        ) from None


def _why(error: Exception, target: Notify) -> str:
    """Say what went wrong without the command's arguments: they may hold a password or an address."""
    program = target.command[0] if target.command else ""
    if isinstance(error, subprocess.CalledProcessError):
        said = (error.stderr or error.output or "").strip().rsplit("\n", 1)[-1][:200]
        text = f"{program} ended with {error.returncode}" + (f": {said}" if said else "")
    elif isinstance(error, subprocess.TimeoutExpired):
        text = f"{program} did not end within {error.timeout:g} s"
    else:
        text = str(error)
    return redact(text)
