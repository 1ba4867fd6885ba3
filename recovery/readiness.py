"""How often people agreed with what each policy rule proposed: the ground for letting it act alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from sqlalchemy import Connection, select

from rerail.domain.plan import ActionState, Mode, RecoveryPlan, Risk
from rerail.recovery.site_policy import SitePolicy
from rerail.recovery.store.tables import ACTIONS, PLANS

DECIDED = {
    ActionState.VERIFIED: "agreed",
    ActionState.REJECTED: "rejected",
    ActionState.FAILED: "failed",
    ActionState.EXPIRED: "expired",
}


@dataclass
class RuleRecord:
    """What became of the steps of one rule that could be taken alone: reversible, of low risk.

    `latest` holds the decisions of people, the newest last: `agreed`, `rejected` or `failed`.
    """

    rule: str
    mode: Mode | None
    plans: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    latest: list[str] = field(default_factory=list)

    def missing(self, needed: int) -> str:
        """Return why the record does not carry `auto-low` yet, or an empty string."""
        if self.mode is None:
            return "the policy file has no such rule any more"
        recent = self.latest[-needed:]
        for wrong in ("rejected", "failed"):
            if wrong in recent:
                return f"{recent.count(wrong)} of the last {len(recent)} decisions: {wrong}"
        agreed = recent.count("agreed")
        return "" if agreed >= needed else f"{agreed} of {needed} agreed proposals in a row"


def records(connection: Connection, policy: SitePolicy) -> list[RuleRecord]:
    """Return the record of each rule, those of the policy file first, in its order."""
    found = {one.id: RuleRecord(one.id, one.mode) for one in policy.rules}
    found.setdefault("default", RuleRecord("default", policy.default_mode))
    states: dict[str, dict[int, ActionState]] = {}
    for row in connection.execute(select(ACTIONS.c.plan, ACTIONS.c.step, ACTIONS.c.state)):
        states.setdefault(str(row.plan), {})[int(row.step)] = ActionState(row.state)
    for (body,) in connection.execute(select(PLANS.c.body).order_by(PLANS.c.made_at)):
        plan = RecoveryPlan.model_validate(body)
        if plan.rule in ("undo", "shared-root"):
            continue
        record = found.setdefault(plan.rule, RuleRecord(plan.rule, None))
        record.plans += 1
        for action in plan.actions:
            if action.risk is not Risk.LOW or not action.reversible:
                continue
            state = states.get(plan.id, {}).get(action.step)
            word = DECIDED.get(state, "open") if state is not None else "open"
            if not action.needs_approval:
                record.counts["alone"] += 1
                continue
            record.counts[word] += 1
            if word in ("agreed", "rejected", "failed"):
                record.latest.append(word)
    return list(found.values())
