"""A recovery plan: which actions out of a closed catalogue, on what, why, and how to undo them."""

from __future__ import annotations

import hashlib
import json
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from rerail.domain.job import JobRef


class Risk(StrEnum):
    """What an action can break when it is wrong.

    `none` tells people; `low` is undone by one command; `medium` costs training time; `high` can
    lose work or take many nodes away.
    """

    NONE = "none"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class ActionKind(StrEnum):
    """The closed catalogue; nothing else is ever executed."""

    NOTIFY = "notify"
    TICKET = "ticket"
    HEALTH_TESTS = "run_health_tests"
    COLLECT_DUMPS = "collect_dumps"
    DRAIN = "drain"
    UNDRAIN = "undrain"
    CANCEL = "cancel"
    REQUEUE = "requeue"
    REQUEUE_EXCLUDING = "requeue_excluding"
    RESTART_FROM_CHECKPOINT = "restart_from_checkpoint"
    SKIP_DATA = "roll_back_and_skip_data"
    MICRO_BATCHES = "adjust_micro_batches"
    RESUBMIT = "resubmit"


class Mode(StrEnum):
    """How far a policy rule may go by itself.

    `observe` records what it would do, `propose` waits for an approval, `auto-low` executes what is
    reversible, of low risk, within budget and established by rules.
    """

    OBSERVE = "observe"
    PROPOSE = "propose"
    AUTO_LOW = "auto-low"


class ActionState(StrEnum):
    """Where an action stands; stored before and after every side effect.

    A process that finds `executing` after a crash treats it as `unknown` and verifies first.
    """

    PROPOSED = "proposed"
    APPROVED = "approved"
    REJECTED = "rejected"
    EXPIRED = "expired"
    EXECUTING = "executing"
    UNKNOWN = "unknown"
    VERIFYING = "verifying"
    VERIFIED = "verified"
    FAILED = "failed"
    UNDONE = "undone"


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class PlannedAction(_Record):
    """One step of a plan. `target` is a node name, or the job id, or empty for a notification."""

    step: Annotated[int, Field(ge=1)]
    kind: ActionKind
    target: str = ""
    parameters: dict[str, Any] = {}
    risk: Risk
    reversible: bool
    preconditions: tuple[str, ...] = ()
    because: str
    evidence: tuple[str, ...] = ()
    needs_approval: bool
    undo: ActionKind | None = None
    verify: str = ""


class RecoveryPlan(_Record):
    """What to do about one incident; times are seconds since the epoch.

    `refusals` says what the policy would not do and why. A plan without actions is an answer too.
    """

    schema_version: Literal[1] = 1
    id: str
    incident: str
    job: JobRef
    rule: str
    mode: Mode
    made_at: float
    expires_at: float
    actions: tuple[PlannedAction, ...] = ()
    refusals: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """SHA-256 over everything that an approver saw; an approval is bound to it."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def action(self, step: int) -> PlannedAction | None:
        """Return the action of that step number, or None."""
        return next((one for one in self.actions if one.step == step), None)
