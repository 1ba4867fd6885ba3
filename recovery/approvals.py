"""Approvals: a person's yes to one step of one plan, signed so that no chat or page can forge one.

An approval binds the plan's digest, the step, its target and an expiry (`rerail.recovery.signing`).
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, insert, select

from rerail.domain.plan import ActionKind, ActionState, Mode, PlannedAction, RecoveryPlan, Risk
from rerail.errors import RecoveryError
from rerail.recovery.signing import fits, sign
from rerail.recovery.site_policy import SitePolicy
from rerail.recovery.store import audit, plans
from rerail.recovery.store.tables import APPROVALS

ORDER = (Risk.NONE, Risk.LOW, Risk.MEDIUM, Risk.HIGH)


def valid(key: bytes, plan: RecoveryPlan, action: PlannedAction, row: Row[Any], now: float) -> bool:
    """Return whether a stored approval holds for this plan as it is, and now."""
    bound = (plan.id, row.digest, row.step, row.target, row.decision, row.by, row.expires_at)
    return (
        fits(str(row.signature), key, *bound)
        and row.decision == "approved"
        and row.digest == plan.digest
        and row.step == action.step
        and row.target == action.target
        and now < row.expires_at
    )


def approvers(
    connection: Connection, key: bytes, plan: RecoveryPlan, action: PlannedAction, now: float
) -> set[str]:
    """Return the persons whose approval of this step holds now."""
    rows = connection.execute(
        select(APPROVALS).where(APPROVALS.c.plan == plan.id, APPROVALS.c.step == action.step)
    )
    return {str(row.by) for row in rows if valid(key, plan, action, row, now)}


def persons_needed(action: PlannedAction, policy: SitePolicy) -> int:
    """Return how many different persons have to approve an action of that risk."""
    above = ORDER.index(action.risk) > ORDER.index(Risk(policy.approvals.two_persons_above))
    return 2 if above else 1


def check_approver(person: str, policy: SitePolicy, kind: ActionKind | None = None) -> None:
    """Refuse whoever may not decide on a kind of action; where the policy names nobody, all may.

    Raises:
        RecoveryError: The policy names approvers, and not this person.
    """
    allowed = policy.approvals.allowed(kind)
    if allowed and person not in allowed:
        raise RecoveryError(
            f"{person} is none of the approvers: {', '.join(allowed)}",
            subject=person,
            hint="approvals.approvers and approvers_of in the policy file",
        )


def approve(
    connection: Connection,
    key: bytes,
    plan: RecoveryPlan,
    step: int,
    *,
    by: str,
    policy: SitePolicy,
    now: float,
) -> str:
    """Record a person's approval; return `approved`, `waiting` (a second is needed) or `already`.

    Raises:
        RecoveryError: The plan is not signed, the step is not open, or the policy does not allow it.
    """
    row = _open_step(connection, plan, step)
    if row.state is not ActionState.PROPOSED:
        return "already"
    if why := plans.why_untrusted(connection, plan, key):
        raise RecoveryError(why, subject=plan.id, hint=f"rerail plan {plan.incident} --again")
    if plan.mode is Mode.OBSERVE and row.action.needs_approval:
        raise RecoveryError(
            f"rule {plan.rule!r} only observes: it cannot be approved",
            subject=plan.rule,
            hint="set its mode to propose in the policy file",
        )
    if now >= plan.expires_at:
        plans.move(connection, row, ActionState.EXPIRED, actor="rerail", now=now)
        return "expired"
    check_approver(by, policy, row.action.kind)
    expires = min(plan.expires_at, now + policy.approvals.expires_s)
    _record(connection, key, plan, row.action, "approved", by, now, expires)
    names = approvers(connection, key, plan, row.action, now)
    if len(names) < persons_needed(row.action, policy):
        return "waiting"
    moved = plans.move(connection, row, ActionState.APPROVED, actor=by, now=now, not_before=0.0)
    return "approved" if moved else "already"


def reject(
    connection: Connection,
    key: bytes,
    plan: RecoveryPlan,
    step: int,
    *,
    by: str,
    why: str,
    policy: SitePolicy,
    now: float,
) -> str:
    """Record a person's no; return `rejected` or `already`.

    Raises:
        RecoveryError: The plan has no such step, or the person may not decide.
    """
    row = _open_step(connection, plan, step)
    check_approver(by, policy, row.action.kind)
    if row.state not in (ActionState.PROPOSED, ActionState.APPROVED):
        return "already"
    _record(connection, key, plan, row.action, "rejected", by, now, plan.expires_at)
    moved = plans.move(connection, row, ActionState.REJECTED, actor=by, now=now, note=why)
    return "rejected" if moved else "already"


def _open_step(connection: Connection, plan: RecoveryPlan, step: int) -> plans.ActionRow:
    for row in plans.states(connection, plan):
        if row.action.step == step:
            return row
    raise RecoveryError(
        f"plan {plan.id} has no step {step}", subject=plan.id, hint=f"rerail plan {plan.id}"
    )


def _record(
    connection: Connection,
    key: bytes,
    plan: RecoveryPlan,
    action: PlannedAction,
    decision: str,
    by: str,
    now: float,
    expires: float,
) -> None:
    signature = sign(
        *(key, plan.id, plan.digest, action.step, action.target, decision, by, expires)
    )
    connection.execute(
        insert(APPROVALS).values(
            plan=plan.id,
            step=action.step,
            digest=plan.digest,
            target=action.target,
            decision=decision,
            by=by,
            made_at=now,
            expires_at=expires,
            signature=signature,
        )
    )
    audit.note(
        *(connection, by, f"step_{decision}", f"{plan.id}/{action.step}"),
        digest=plan.digest,
        target=action.target,
        expires_at=expires,
    )
