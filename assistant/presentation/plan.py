"""A recovery plan as it is shown: each step with what exactly would be done, what it touches, and its state."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Engine

from rerail.assistant.presentation.step_facts import StepFacts, clock_time, commands_of
from rerail.assistant.watch.presence import what_runs
from rerail.assistant.watch.site import Site
from rerail.domain.plan import ActionState, Mode, RecoveryPlan, Risk
from rerail.knowledge_base.store.engine import reading
from rerail.recovery.executor import TELLING
from rerail.recovery.signing import signing_key
from rerail.recovery.store import plans
from rerail.recovery.store.plans import ActionRow

OPEN_TO_DECIDE = (ActionState.PROPOSED, ActionState.APPROVED)


@dataclass(frozen=True, slots=True)
class StepView:
    """One step of a plan; `wanted` is what a person types to approve it.

    `commands` are those that were run where `done`, else those that would be. `touches` and `budget`
    are empty where nothing is to be decided any more. `asks` while a person can decide on it.
    """

    number: int
    kind: str
    target: str
    state: str
    note: str
    because: str
    evidence: tuple[str, ...]
    risk: str
    undo: str
    approval: str
    commands: tuple[str, ...]
    done: bool
    touches: str
    budget: str
    further: tuple[tuple[str, str], ...]
    asks: bool
    wanted: str

    @property
    def name(self) -> str:
        """What is done to what."""
        return f"{self.kind} {self.target}".rstrip()

    @property
    def risk_words(self) -> str:
        """The risk, and how it is taken back."""
        return f"{self.risk}; undo: {self.undo}" if self.undo else self.risk


@dataclass(frozen=True, slots=True)
class PlanView:
    """A plan with the sentences that say what stops it, if anything does, and the next command."""

    id: str
    incident: str
    job: str
    digest: str
    rule: str
    mode: str
    made: str
    expires: str
    steps: tuple[StepView, ...]
    refusals: tuple[str, ...]
    warnings: tuple[str, ...]
    next: str


def plan_view(site: Site, engine: Engine, plan: RecoveryPlan, rows: list[ActionRow]) -> PlanView:
    """Return the view of a plan as things stand now; the scheduler is asked what it would touch."""
    with reading(engine) as connection:
        why = site.brake().why(connection)
        untrusted = plans.why_untrusted(connection, plan, signing_key(site.data))
    warnings = list(what_runs(engine, site))
    if why:
        warnings.insert(0, f"STOPPED: {why}")
    if untrusted:
        warnings.insert(0, f"NOT EXECUTED: {untrusted}; next: rerail plan {plan.incident} --again")
    facts = StepFacts(site, engine)
    steps = tuple(step_view(site, engine, facts, plan, row) for row in rows)
    return PlanView(
        id=plan.id,
        incident=plan.incident,
        job=f"{plan.job.job} attempt {plan.job.attempt}",
        digest=plan.digest[:12],
        rule=plan.rule,
        mode=str(plan.mode),
        made=clock_time(plan.made_at),
        expires=clock_time(plan.expires_at),
        steps=steps,
        refusals=tuple(plan.refusals),
        warnings=tuple(warnings),
        next=_next(plan, rows),
    )


def step_view(
    site: Site, engine: Engine, facts: StepFacts, plan: RecoveryPlan, row: ActionRow
) -> StepView:
    """Return the view of one step as things stand now."""
    action = row.action
    is_open = row.state in OPEN_TO_DECIDE
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
        undo=str(action.undo or "").replace("_", " "),
        approval=""
        if action.risk is Risk.NONE
        else "needs approval"
        if action.needs_approval
        else "automatic",
        commands=tuple(commands_of(site, engine, row)),
        done=not is_open,
        touches=facts.touches(row) if shown else "",
        budget=facts.budget(row) if shown else "",
        further=_further(row),
        asks=row.state is ActionState.PROPOSED
        and action.needs_approval
        and plan.mode is not Mode.OBSERVE,
        wanted=action.target or plan.id,
    )


def _further(row: ActionRow) -> tuple[tuple[str, str], ...]:
    """Return what only some steps have, each with its word."""
    action = row.action
    skip = action.parameters.get("skip_batches")
    told = (
        ("from", str(action.parameters.get("checkpoint") or "")),
        ("skips", f"batches {skip[0]} to {skip[1]}" if skip else ""),
        ("checked", "; ".join(action.preconditions)),
        ("verified", f"when {action.verify}" if action.verify else ""),
    )
    return tuple((word, text) for word, text in told if text)


def _next(plan: RecoveryPlan, rows: list[ActionRow]) -> str:
    waiting = [
        r.action.step for r in rows if r.state is ActionState.PROPOSED and r.action.needs_approval
    ]
    if not waiting:
        return ""
    if plan.mode is Mode.OBSERVE:
        return f"rule {plan.rule} only observes: nothing of this can be approved"
    return f"next: rerail approve {plan.id} --step {waiting[0]}"
