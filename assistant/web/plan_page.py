"""The plan of an incident: approve and reject with the signatures and rules of the terminal.

Nothing is executed from here: an approved step is carried out by `rerail watch`, which alone has
the writer's identity.
"""

from __future__ import annotations

import time
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends, Form
from fastapi.responses import RedirectResponse

from rerail.assistant.presentation.plan import PlanView, plan_view
from rerail.assistant.presentation.step_facts import load_plan
from rerail.assistant.watch.presence import check_same_policy
from rerail.assistant.watch.site import load_site
from rerail.assistant.web.application import Pages
from rerail.assistant.web.forms import written_here
from rerail.errors import RecoveryError, RerailError
from rerail.knowledge_base.store.engine import writing
from rerail.knowledge_base.store.opened import opened_store
from rerail.recovery import approvals
from rerail.recovery.signing import signing_key

Person = Annotated[str, Depends(written_here)]
_TOLD = {
    "approved": "approved; rerail watch carries it out",
    "already": "was decided already; nothing was done",
    "waiting": "approved; a second person has to approve it too",
    "expired": "has expired; make a new plan: rerail plan {incident} --again",
    "rejected": "rejected",
}


def plan_of(name: str) -> PlanView | None:
    """Return the plan of an incident as things stand now, or None where there is none to show."""
    try:
        site = load_site()
        with opened_store() as engine:
            plan, rows = load_plan(engine, name)
            return plan_view(site, engine, plan, rows)
    except RerailError:
        return None


def routes(pages: Pages) -> APIRouter:
    """Return the routes of decisions."""
    router = APIRouter(include_in_schema=False)

    @router.post("/plans/{name}/{step}/approve")
    def approve(
        name: str, step: int, person: Person, typed: Annotated[str, Form(max_length=300)] = ""
    ) -> RedirectResponse:
        site = load_site()
        with opened_store() as engine:
            check_same_policy(engine, site)
            plan, rows = load_plan(engine, name)
            row = next((one for one in rows if one.action.step == step), None)
            if row is None:
                raise RecoveryError(f"no such step {step} in plan {plan.id}", subject=plan.id)
            wanted = row.action.target or plan.id
            if typed.strip() != wanted:
                told = f"step {step} was left undone: {typed.strip()[:80]!r} is not {wanted!r}"
                return _back(plan.incident, told)
            with writing(engine) as connection:
                result = approvals.approve(
                    connection,
                    signing_key(site.data),
                    plan,
                    step,
                    by=person,
                    policy=site.policy,
                    now=time.time(),
                )
        told = _TOLD[result].format(incident=plan.incident)
        if result == "approved" and site.policy.dry_run:
            told = "approved; the policy file has dry_run: true, so nothing is executed"
        return _back(plan.incident, f"step {step} {told}")

    @router.post("/plans/{name}/{step}/reject")
    def reject(
        name: str, step: int, person: Person, why: Annotated[str, Form(max_length=500)] = ""
    ) -> RedirectResponse:
        site = load_site()
        with opened_store() as engine:
            plan, _ = load_plan(engine, name)
            with writing(engine) as connection:
                result = approvals.reject(
                    connection,
                    signing_key(site.data),
                    plan,
                    step,
                    by=person,
                    why=why,
                    policy=site.policy,
                    now=time.time(),
                )
        return _back(plan.incident, f"step {step} {_TOLD[result]}")

    return router


def _back(incident: str, told: str) -> RedirectResponse:
    return RedirectResponse(f"/incidents/{incident}?said={quote(told)}#plan", 303)
