"""The bodies of `rerail plan`, `approve` and `reject`: the card that a person decides on."""

from __future__ import annotations

import json
import sys
import time

from sqlalchemy import Engine

from rerail.assistant.cli.dry_run import dry_run_command
from rerail.assistant.cli.step_card import decision_lines, plan_lines
from rerail.assistant.identity import acting_person, login
from rerail.assistant.locate.job_name import JobName, job_name
from rerail.assistant.presentation.plan import PlanView, StepView, plan_view
from rerail.assistant.presentation.step_facts import checked_now, load_plan
from rerail.assistant.watch.on_request import plan_incident
from rerail.assistant.watch.presence import check_same_policy
from rerail.assistant.watch.site import Site, load_site
from rerail.domain.plan import ActionState, RecoveryPlan
from rerail.errors import RecoveryError, StoreError
from rerail.knowledge_base.store.engine import reading, writing
from rerail.knowledge_base.store.opened import opened_store
from rerail.recovery import approvals
from rerail.recovery.executor import TELLING
from rerail.recovery.policy import undo_plan
from rerail.recovery.signing import signing_key
from rerail.recovery.store import plans, queue
from rerail.recovery.store.plans import ActionRow

UNFINISHED = (ActionState.APPROVED, ActionState.EXECUTING, ActionState.UNKNOWN)
UNDER_WAY = (*UNFINISHED, ActionState.VERIFYING)
NOT_DONE = (ActionState.EXPIRED, ActionState.REJECTED, ActionState.FAILED)


def plan_command(name: str, *, again: bool, json_output: bool) -> int:
    """Print a plan, making one for an incident that has none; exit code 0.

    `again` makes a new one in any case, from what scheduler and files say now. A job that is named is
    diagnosed first, as `rerail diagnose` does.

    Raises:
        RecoveryError: No event told of the job, or steps of the present plan are under way.
        EvidenceError: There is no such job, or nothing of it can be read.
        ClusterError: The scheduler does not answer.
    """
    site = load_site()
    job = job_name(name)
    if job is not None and not _is_plan(name):
        name = _diagnosed(job)
    with opened_store() as engine:
        if job is not None and again:
            _make_if_none(engine, site, name)
        if again:
            name = _make_anew(engine, site, name)
        elif name.upper().startswith("INC-"):
            _make_if_none(engine, site, name)
        plan, rows = load_plan(engine, name)
        view = plan_view(site, engine, plan, rows)
        if json_output:
            print(json.dumps(_as_dict(plan, view), indent=1))
            return 0
        print("\n".join(plan_lines(view)))
    return 0


def _is_plan(name: str) -> bool:
    """Tell whether a number is the beginning of a plan's id; then it is that, as ever."""
    with opened_store() as engine, reading(engine) as connection:
        try:
            plans.find_id(connection, name)
        except RecoveryError:
            return False
    if name.isdigit():
        print(
            f"rerail: {name} begins the id of a plan and is read as that; slurm://{name} is the job of that number",
            file=sys.stderr,
        )
    return True


def _diagnosed(job: JobName) -> str:
    """Return the incident of a job that was named, diagnosed now.

    Raises:
        StoreError: It could not be kept, and without a record there is no plan.
    """
    from rerail.assistant.locate.by_name import diagnose_and_record

    _, recorded = diagnose_and_record(job)
    for banner in recorded.banners:
        print(f"rerail: {banner}", file=sys.stderr)
    if recorded.incident is None:
        raise StoreError(f"job {job.text} has no incident to plan for", subject=job.text)
    return recorded.incident.id


def _make_if_none(engine: Engine, site: Site, name: str) -> None:
    with writing(engine) as connection:
        try:
            plans.find_id(connection, name)
        except RecoveryError:
            plan_incident(connection, site, name)


def _make_anew(engine: Engine, site: Site, name: str) -> str:
    """Return the id of a new plan for the job of a plan; what still waits in the old one is closed."""
    plan, rows = load_plan(engine, name)
    busy = [row for row in rows if row.state in UNDER_WAY and row.action.kind not in TELLING]
    if busy:
        raise RecoveryError(
            f"step {busy[0].action.step} of {plan.id} is {busy[0].state}: a new plan could do it twice",
            subject=plan.id,
            hint=f"rerail plan {plan.id}",
        )
    with reading(engine) as connection:
        keys = (plan.job.key, f"{plan.job.key}/stalled")
        events = [found for key in keys if (found := queue.event_of(connection, key))]
    if not events:
        raise RecoveryError(
            f"no scheduler event told of job {plan.job.job}: there is nothing to decide on anew",
            subject=plan.job.job,
            hint="rerail hook EVENT.json, and rerail watch",
        )
    made = site.worker(engine).plan_again(events[0])
    with writing(engine) as connection:
        for row in rows:
            if row.state is ActionState.PROPOSED and row.action.kind not in TELLING:
                plans.move(
                    *(connection, row, ActionState.EXPIRED),
                    actor=login(),
                    now=time.time(),
                    note="a new plan was asked for",
                )
    return made.id


def _as_dict(plan: RecoveryPlan, view: PlanView) -> dict[str, object]:
    def facts(step: StepView) -> dict[str, str]:
        return {"touches": step.touches, "budget": step.budget} if step.touches else {}

    return {
        **plan.model_dump(mode="json"),
        "digest": plan.digest,
        "states": [
            {
                "step": step.number,
                "state": step.state,
                "note": step.note,
                "commands": list(step.commands),
                **facts(step),
            }
            for step in view.steps
        ],
    }


def approve_command(
    name: str, *, step: int | None, target: str | None, by: str | None, dry_run: bool = False
) -> int:
    """Ask, sign, execute, verify. Exit code 0 if every asked step was approved, 1 if not.

    `dry_run` tries the steps without effect; 0 if each would be done now.

    Raises:
        RecoveryError: The plan or step does not exist, or may not be approved.
    """
    site = load_site()
    if dry_run:
        return dry_run_command(site, name, step=step, by=login())
    key = signing_key(site.data)
    with opened_store() as engine:
        check_same_policy(engine, site)
        plan, rows = load_plan(engine, name)
        asked = [row for row in rows if _is_asked(row, step)]
        strict = any(approvals.persons_needed(row.action, site.policy) > 1 for row in asked)
        person = acting_person(by, site.policy, strict=strict)
        if step is not None and not asked:
            raise RecoveryError(
                f"plan {plan.id} has no step {step} to approve",
                subject=plan.id,
                hint=f"rerail plan {plan.id}",
            )
        if not asked:
            print(f"{plan.id}: no step waits for an approval")
            return 0
        yes = True
        for row in asked:
            yes = _approve_one(site, engine, key, row, person, target) and yes
    return 0 if yes else 1


def _is_asked(row: ActionRow, step: int | None) -> bool:
    if step is not None:
        return row.action.step == step
    return row.action.needs_approval and row.state is ActionState.PROPOSED


def _approve_one(
    site: Site, engine: Engine, key: bytes, row: ActionRow, person: str, target: str | None
) -> bool:
    action, plan = row.action, row.plan
    if row.state is not ActionState.PROPOSED:
        print(f"step {action.step} is {row.state} already; nothing was done")
        if row.state is ActionState.EXPIRED:
            print(f"next: rerail plan {plan.incident} --again")
        return row.state not in NOT_DONE
    wanted = action.target or plan.id
    view = plan_view(site, engine, plan, [row])
    print("\n".join(decision_lines(view, view.steps[0])))
    print(f"  checked   {checked_now(site, engine, row)}")
    typed = target
    if typed is None:
        if not sys.stdin.isatty():
            print(f"  not approved: give --target {wanted} where no terminal can ask")
            return False
        typed = input(f"Type {wanted} to approve, or press Enter to leave it undone: ").strip()
    if typed != wanted:
        print("  left undone" if not typed else f"  left undone: {typed!r} is not {wanted!r}")
        return False
    with writing(engine) as connection:
        result = approvals.approve(
            connection, key, plan, action.step, by=person, policy=site.policy, now=time.time()
        )
    if result != "approved":
        told = {
            "already": "was decided already; nothing was done",
            "waiting": "approved; a second person has to approve it too",
            "expired": f"has expired; next: rerail plan {plan.incident} --again",
        }
        print(f"  step {action.step} {told[result]}")
        return result != "expired"
    print(f"  approved by {person}")
    return _carry_out(site, engine, plan, action.step)


def _carry_out(site: Site, engine: Engine, plan: RecoveryPlan, step: int) -> bool:
    """Execute the approved step here and wait a little for its effect."""
    if site.policy.dry_run:
        print("  dry run: the policy file has dry_run: true, nothing is executed")
        return True
    executor = site.executor(engine)
    deadline = time.monotonic() + 20.0
    state, note = ActionState.APPROVED, ""
    while time.monotonic() < deadline:
        executor.advance(plan.id)
        with reading(engine) as connection:
            rows = plans.states(connection, plan)
        row = next(one for one in rows if one.action.step == step)
        if row.state is not state:
            state, note = row.state, row.note
            print(f"  -> {state}" + (f" ({note})" if note else ""))
        if state not in (*UNFINISHED, ActionState.VERIFYING):
            break
        time.sleep(0.5)
    if state is ActionState.VERIFYING or state in UNFINISHED:
        print("  not verified yet; rerail watch goes on looking")
    return state is not ActionState.FAILED


def reject_command(name: str, *, step: int | None, why: str, by: str | None) -> int:
    """Record a person's no; exit code 0.

    Raises:
        RecoveryError: The plan or step does not exist.
    """
    site = load_site()
    key = signing_key(site.data)
    with opened_store() as engine:
        plan, rows = load_plan(engine, name)
        asked = [row for row in rows if _is_asked(row, step)]
        strict = any(approvals.persons_needed(row.action, site.policy) > 1 for row in asked)
        person = acting_person(by, site.policy, strict=strict)
        steps = [step] if step is not None else [row.action.step for row in asked]
        for number in steps:
            with writing(engine) as connection:
                result = approvals.reject(
                    *(connection, key, plan, number),
                    by=person,
                    why=why,
                    policy=site.policy,
                    now=time.time(),
                )
            print(f"{plan.id} step {number}: {result}")
    return 0


def undo_command(name: str, step: int) -> int:
    """Make the plan that takes a step back; it waits for an approval like any other.

    Raises:
        RecoveryError: The step was never carried out, or nothing can take it back.
    """
    site = load_site()
    with opened_store() as engine:
        plan, rows = load_plan(engine, name)
        row = next((one for one in rows if one.action.step == step), None)
        back = undo_plan(plan, step, time.time(), site.policy.approvals.expires_s)
        if row is None or back is None:
            raise RecoveryError(
                f"nothing can take back step {step} of {plan.id}",
                subject=plan.id,
                hint=f"rerail plan {plan.id}",
            )
        key = signing_key(site.data)
        with reading(engine) as connection:
            # Its undo would carry our signature, and with it what somebody else wrote.
            if why := plans.why_untrusted(connection, plan, key):
                raise RecoveryError(why, subject=plan.id, hint="rerail audit verify")
        if row.carried_out_at is None:
            raise RecoveryError(
                f"step {step} of {plan.id} was never carried out: it is {row.state}",
                subject=plan.id,
                hint=f"rerail plan {plan.id}",
            )
        with writing(engine) as connection:
            plans.save(connection, back, key)
    print(f"{back.id}: {back.actions[0].kind} {back.actions[0].target}")
    print(f"next: rerail approve {back.id} --step 1")
    return 0
