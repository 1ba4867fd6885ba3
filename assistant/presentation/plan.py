"""A recovery plan as it is shown: each step with what exactly would be done, what it touches, and its state."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Engine

from rerail.assistant.cli.step_card import StepCards, clock_time, commands_of
from rerail.assistant.watch.presence import what_runs
from rerail.assistant.watch.site import Site
from rerail.domain.plan import ActionState, Mode, RecoveryPlan
from rerail.knowledge_base.store.engine import reading
from rerail.recovery.executor import TELLING
from rerail.recovery.signing import signing_key
from rerail.recovery.store import plans
from rerail.recovery.store.plans import ActionRow


@dataclass(frozen=True, slots=True)
class StepView:
    """One step of a plan; `wanted` is what a person types to approve it."""

    number: int
    kind: str
    target: str
    state: str
    note: str
    because: str
    evidence: tuple[str, ...]
    risk: str
    undo: str
    commands: tuple[str, ...]
    touches: str
    budget: str
    asks: bool
    wanted: str


@dataclass(frozen=True, slots=True)
class PlanView:
    """A plan with the sentences that say what stops it, if anything does."""

    id: str
    digest: str
    rule: str
    mode: str
    expires: str
    steps: tuple[StepView, ...]
    refusals: tuple[str, ...]
    warnings: tuple[str, ...]


def plan_view(site: Site, engine: Engine, plan: RecoveryPlan, rows: list[ActionRow]) -> PlanView:
    """Return the view of a plan as things stand now; the scheduler is asked what it would touch."""
    with reading(engine) as connection:
        why = site.brake().why(connection)
        untrusted = plans.why_untrusted(connection, plan, signing_key(site.data))
    warnings = list(what_runs(engine, site))
    if why:
        warnings.insert(0, f"STOPPED: {why}")
    if untrusted:
        warnings.insert(0, f"NOT EXECUTED: {untrusted}")
    cards = StepCards(site, engine)
    return PlanView(
        id=plan.id,
        digest=plan.digest[:12],
        rule=plan.rule,
        mode=str(plan.mode),
        expires=clock_time(plan.expires_at),
        steps=tuple(_step(site, engine, cards, plan, row) for row in rows),
        refusals=tuple(plan.refusals),
        warnings=tuple(warnings),
    )


def _step(
    site: Site, engine: Engine, cards: StepCards, plan: RecoveryPlan, row: ActionRow
) -> StepView:
    action = row.action
    is_open = row.state in (ActionState.PROPOSED, ActionState.APPROVED)
    shown = is_open and action.kind not in TELLING
    return StepView(
        number=action.step,
        kind=str(action.kind).replace("_", " "),
        target=action.target or "",
        state=str(row.state),
        note=row.note or "",
        because=action.because,
        evidence=tuple(action.evidence),
        risk=str(action.risk),
        undo=action.undo or "",
        commands=tuple(commands_of(site, engine, row)),
        touches=cards.touches(row) if shown else "",
        budget=cards.budget(row) if shown else "",
        asks=row.state is ActionState.PROPOSED
        and action.needs_approval
        and plan.mode is not Mode.OBSERVE,
        wanted=action.target or plan.id,
    )
