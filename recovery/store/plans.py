"""Plans and the state of their actions; every change of state is also an audit entry."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Connection, Row, desc, func, insert, select, update

from rerail.domain.plan import ActionKind, ActionState, PlannedAction, RecoveryPlan
from rerail.errors import RecoveryError
from rerail.recovery.signing import fits, sign
from rerail.recovery.store import audit
from rerail.recovery.store.tables import ACTIONS, AUDIT, PLANS

OPEN = (ActionState.PROPOSED, ActionState.APPROVED, ActionState.UNKNOWN, ActionState.EXECUTING)


@dataclass(frozen=True, slots=True)
class ActionRow:
    """One action with its state. Times are seconds since the epoch."""

    plan: RecoveryPlan
    action: PlannedAction
    state: ActionState
    changed_at: float
    not_before: float
    carried_out_at: float | None
    tries: int
    holder: str | None
    note: str


def save(connection: Connection, plan: RecoveryPlan, key: bytes) -> bool:
    """Store a plan with its actions as proposed; return False where it is stored already.

    It is signed with the site's `key`: a plan that somebody else wrote is never executed.
    """
    if connection.execute(select(PLANS.c.id).where(PLANS.c.id == plan.id)).first() is not None:
        return False
    connection.execute(
        insert(PLANS).values(
            id=plan.id,
            incident=plan.incident,
            cluster=plan.job.cluster,
            job=plan.job.job,
            attempt=plan.job.attempt,
            digest=plan.digest,
            made_at=plan.made_at,
            expires_at=plan.expires_at,
            body=plan.model_dump(mode="json"),
            signature=sign(key, *_bound(plan)),
        )
    )
    for action in plan.actions:
        connection.execute(
            insert(ACTIONS).values(
                plan=plan.id,
                step=action.step,
                kind=str(action.kind),
                target=action.target,
                state=str(ActionState.PROPOSED),
                changed_at=plan.made_at,
                # Nobody has to look at a step that waits for a person until it expires.
                not_before=plan.expires_at if action.needs_approval else 0.0,
                tries=0,
                note="",
            )
        )
    audit.note(
        *(connection, "policy", "plan_made", plan.id),
        incident=plan.incident,
        digest=plan.digest,
        rule=plan.rule,
        mode=str(plan.mode),
        actions=[f"{one.step} {one.kind} {one.target}".strip() for one in plan.actions],
        refusals=list(plan.refusals),
    )
    return True


def find_id(connection: Connection, text: str) -> str:
    """Return the id of a plan from its beginning, or of the newest plan of an incident.

    Raises:
        RecoveryError: Nothing, or more than one plan, begins like that.
    """
    wanted = text.strip()
    if wanted.upper().startswith("INC-") or wanted in ("", "last", "latest"):
        query = select(PLANS.c.id).order_by(desc(PLANS.c.made_at), desc(PLANS.c.id)).limit(1)
        if wanted.upper().startswith("INC-"):
            query = query.where(PLANS.c.incident.startswith("INC-" + wanted[4:].lower()))
    else:
        stem = "P-" + wanted.removeprefix("P-").removeprefix("p-").lower()
        query = select(PLANS.c.id).where(PLANS.c.id.startswith(stem, autoescape=True)).limit(2)
    found = connection.execute(query).all()
    if len(found) == 1:
        return str(found[0].id)
    raise RecoveryError(
        f"no plan is called {text!r}" if not found else f"{text!r} may mean several plans",
        subject=text,
        hint="rerail plan INCIDENT shows the plans of an incident",
    )


def load(connection: Connection, name: str) -> RecoveryPlan:
    """Return a stored plan.

    Raises:
        RecoveryError: There is none, or its content is not what was stored.
    """
    row = connection.execute(select(PLANS).where(PLANS.c.id == name)).first()
    if row is None:
        raise RecoveryError(f"no plan is called {name!r}", subject=name, hint="rerail incidents")
    try:
        plan = RecoveryPlan.model_validate(row.body)
    except ValidationError:
        plan = None
    if plan is None or plan.digest != row.digest or plan.id != name:
        raise RecoveryError(
            f"plan {name} was changed after it was made",
            subject=name,
            hint="rerail audit verify",
        )
    return plan


def _bound(plan: RecoveryPlan) -> tuple[str, str, str]:
    return ("plan", plan.id, plan.digest)


def why_untrusted(connection: Connection, plan: RecoveryPlan, key: bytes) -> str:
    """Return why a plan must not be executed here, or an empty string if it is signed by `key`."""
    signature = connection.execute(select(PLANS.c.signature).where(PLANS.c.id == plan.id)).scalar()
    if not signature:
        return f"plan {plan.id} is not signed: made before plans were, or written past rerail"
    if fits(str(signature), key, *_bound(plan)):
        return ""
    return f"plan {plan.id} was altered, or made with another key than this site's"


def close_altered(connection: Connection, name: str, why: str, now: float) -> None:
    """End the open steps of a plan that cannot be read as it was made; it is on the record."""
    waiting = [str(one) for one in (*OPEN, ActionState.VERIFYING)]
    connection.execute(
        update(ACTIONS)
        .where(ACTIONS.c.plan == name, ACTIONS.c.state.in_(waiting))
        .values(state=str(ActionState.FAILED), changed_at=now, note=why[:500])
    )
    audit.note(connection, "rerail", "plan_refused", name, why=why)


def of_incident(connection: Connection, incident: str) -> list[RecoveryPlan]:
    """Return the plans of an incident, oldest first."""
    rows = connection.execute(
        select(PLANS.c.body).where(PLANS.c.incident == incident).order_by(PLANS.c.made_at)
    )
    return [RecoveryPlan.model_validate(row.body) for row in rows]


def count_for(connection: Connection, incident: str) -> int:
    """Return how many plans were made for an incident."""
    query = select(func.count()).select_from(PLANS).where(PLANS.c.incident == incident)
    return int(connection.execute(query).scalar() or 0)


def states(connection: Connection, plan: RecoveryPlan) -> list[ActionRow]:
    """Return the actions of a plan in order, each with its state."""
    rows = connection.execute(
        select(ACTIONS).where(ACTIONS.c.plan == plan.id).order_by(ACTIONS.c.step)
    )
    return [_row(plan, row) for row in rows]


def _row(plan: RecoveryPlan, row: Row[Any]) -> ActionRow:
    action = plan.action(row.step)
    if action is None:
        raise RecoveryError(f"plan {plan.id} has no step {row.step}", subject=plan.id)
    return ActionRow(
        plan,
        action,
        ActionState(row.state),
        row.changed_at,
        row.not_before,
        row.carried_out_at,
        row.tries,
        row.holder,
        row.note,
    )


def plans_with(connection: Connection, now: float, *wanted: ActionState) -> list[str]:
    """Return the ids of plans that have a due action in one of these states, oldest first."""
    rows = connection.execute(
        select(PLANS.c.id)
        .join(ACTIONS, ACTIONS.c.plan == PLANS.c.id)
        .where(ACTIONS.c.state.in_([str(state) for state in wanted]))
        .where(ACTIONS.c.not_before <= now)
        .group_by(PLANS.c.id, PLANS.c.made_at)
        .order_by(PLANS.c.made_at)
    )
    return [str(row.id) for row in rows]


def move(
    connection: Connection,
    row: ActionRow,
    to: ActionState,
    *,
    actor: str,
    now: float,
    note: str = "",
    ran: Sequence[Sequence[str]] = (),
    **values: Any,
) -> bool:
    """Change the state of an action if it still is what `row` says; return whether it was.

    The comparison makes two executors, or two approvals, act once. `ran` are the commands that were
    run on the way, for the record.
    """
    done = connection.execute(
        update(ACTIONS)
        .where(
            ACTIONS.c.plan == row.plan.id,
            ACTIONS.c.step == row.action.step,
            ACTIONS.c.state == str(row.state),
            ACTIONS.c.changed_at == row.changed_at,
        )
        .values(
            state=str(to), changed_at=max(now, row.changed_at + 1e-6), note=note[:500], **values
        )
    )
    if done.rowcount != 1:
        return False
    audit.note(
        *(connection, actor, f"action_{to}", f"{row.plan.id}/{row.action.step}"),
        kind=str(row.action.kind),
        target=row.action.target,
        was=str(row.state),
        note=note,
        incident=row.plan.incident,
        digest=row.plan.digest,
        evidence=list(row.action.evidence),
        ran=[shlex.join(one) for one in ran],
    )
    return True


def commands_run(connection: Connection, plan: str, step: int) -> list[str]:
    """Return the commands that were run for a step, in their order, as the audit log kept them."""
    query = select(AUDIT.c.body).where(AUDIT.c.subject == f"{plan}/{step}").order_by(AUDIT.c.number)
    return [str(one) for (body,) in connection.execute(query) for one in body.get("ran") or ()]


def latest(connection: Connection, most: int) -> list[Row[Any]]:
    """Return the newest plans (id, incident, cluster, job, attempt, made_at, expires_at, body)."""
    query = select(PLANS).order_by(desc(PLANS.c.made_at), desc(PLANS.c.id)).limit(most)
    return list(connection.execute(query).all())


def carried_out_since(
    connection: Connection, since: float, *, kind: ActionKind | None = None, cluster: str = ""
) -> list[tuple[str, str]]:
    """Return kind and target of the cluster actions carried out since a time."""
    query = (
        select(ACTIONS.c.kind, ACTIONS.c.target)
        .join(PLANS, PLANS.c.id == ACTIONS.c.plan)
        .where(ACTIONS.c.carried_out_at >= since)
        .where(ACTIONS.c.kind.not_in([str(ActionKind.NOTIFY), str(ActionKind.TICKET)]))
    )
    if kind is not None:
        query = query.where(ACTIONS.c.kind == str(kind))
    if cluster:
        query = query.where(PLANS.c.cluster == cluster)
    return [(str(row.kind), str(row.target)) for row in connection.execute(query)]


def verified_since(
    connection: Connection, since: float, kinds: Sequence[ActionKind]
) -> dict[str, float]:
    """Return for each incident when a step of these kinds was first seen to have worked."""
    rows = connection.execute(
        select(PLANS.c.incident, func.min(ACTIONS.c.changed_at))
        .join(ACTIONS, ACTIONS.c.plan == PLANS.c.id)
        .where(ACTIONS.c.state == str(ActionState.VERIFIED))
        .where(ACTIONS.c.kind.in_([str(kind) for kind in kinds]))
        .where(ACTIONS.c.changed_at >= since)
        .group_by(PLANS.c.incident)
    )
    return {str(incident): float(at) for incident, at in rows}


@dataclass(frozen=True, slots=True)
class Restart:
    """A restart that rerail began: of which attempt, where it stands, who let it, when it changed last."""

    cluster: str
    job: str
    attempt: int
    state: ActionState
    automatic: bool
    changed_at: float


def restarts_since(
    connection: Connection, since: float, kinds: Sequence[ActionKind]
) -> list[Restart]:
    """Return the restarts of these kinds that were begun since a time, the oldest first."""
    rows = connection.execute(
        select(PLANS.c.body, ACTIONS.c.step, ACTIONS.c.state, ACTIONS.c.changed_at)
        .join(ACTIONS, ACTIONS.c.plan == PLANS.c.id)
        .where(ACTIONS.c.kind.in_([str(kind) for kind in kinds]))
        .where(ACTIONS.c.carried_out_at >= since)
        .order_by(ACTIONS.c.carried_out_at)
    )
    found = []
    for body, step, state, changed_at in rows:
        job = body["job"]
        asks = next((one["needs_approval"] for one in body["actions"] if one["step"] == step), True)
        found.append(
            Restart(
                *(job["cluster"], job["job"], job["attempt"]),
                *(ActionState(state), not asks, float(changed_at)),
            )
        )
    return found
