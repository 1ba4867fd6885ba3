"""A dry run of one step: everything that is read and asked before it, and nothing carried out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from rerail.domain.job import JobRef
from rerail.domain.plan import ActionKind, ActionState, Mode, PlannedAction, RecoveryPlan
from rerail.errors import RerailError
from rerail.knowledge_base.store.engine import reading
from rerail.recovery.executor import RESTARTS, TELLING, Executor
from rerail.recovery.site_policy import SitePolicy
from rerail.recovery.store import control, plans
from rerail.recovery.store.plans import ActionRow
from rerail.tools.clusters.slurm_records import AttemptRecord

NODE_ACTIONS = (ActionKind.DRAIN, ActionKind.UNDRAIN)
TO_THE_JOB = (ActionKind.CANCEL, ActionKind.COLLECT_DUMPS, ActionKind.MICRO_BATCHES)


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What a dry run found: `hindrance` is why the step would not be done now, or empty.

    `said` is how far the cluster itself tried it.
    """

    hindrance: str
    said: str = ""


def rehearse(executor: Executor, row: ActionRow, now: float) -> Rehearsal:
    """Try a step without effect; whether a person has approved it plays no part."""
    action, plan = row.action, row.plan
    if row.state not in (ActionState.PROPOSED, ActionState.APPROVED):
        return Rehearsal(f"the step is {row.state} already")
    if action.kind in TELLING:
        return Rehearsal("", "a message is sent as `notify` of the policy file says")
    if plan.mode is Mode.OBSERVE:
        return Rehearsal(f"rule {plan.rule!r} only observes")
    if now >= plan.expires_at:
        return Rehearsal("the plan has expired")
    with reading(executor.engine) as connection:
        if why := plans.why_untrusted(connection, plan, executor.key):
            return Rehearsal(why)
        if why := executor.brake.why(connection):
            return Rehearsal(why)
    policy = executor.policy_now()
    if policy is None:
        return Rehearsal(executor.held())
    try:
        writer = executor.writer_of(row)
        if why := writer.preconditions(action, plan.job):
            return Rehearsal(why)
        executor.check_restart(row)
        said = writer.rehearse(action, plan.job, plan.incident)
    except RerailError as error:
        return Rehearsal(error.message)
    if policy.dry_run:
        return Rehearsal("the policy file has dry_run: true", said)
    return Rehearsal("", said)


def jobs_touched(
    running: Sequence[AttemptRecord], action: PlannedAction, job: JobRef
) -> tuple[str, ...]:
    """Return the running jobs that a step concerns: those on its nodes, or the job itself."""
    if action.kind in NODE_ACTIONS:
        nodes = {action.target}
    elif action.kind is ActionKind.HEALTH_TESTS:
        nodes = {str(node) for node in action.parameters.get("nodes", [])}
    elif action.kind in TO_THE_JOB or action.parameters.get("running"):
        return tuple(one.job for one in running if one.job == job.job)
    else:
        return ()
    return tuple(one.job for one in running if nodes & set(one.nodes))


def budget_left(
    connection: Connection,
    policy: SitePolicy,
    plan: RecoveryPlan,
    action: PlannedAction,
    *,
    cluster_nodes: int,
    now: float,
) -> str:
    """Return which part of the budgets a step would use up, and how the breaker stands."""
    budgets, window = policy.budgets, policy.breaker
    parts = []
    if action.kind is ActionKind.DRAIN:
        since = plans.carried_out_since(
            connection, now - 3600.0, kind=ActionKind.DRAIN, cluster=plan.job.cluster
        )
        count = len({target for _, target in since} | {action.target})
        parts.append(f"node {count} of {budgets.nodes_allowed(cluster_nodes)} in an hour")
    if action.kind in RESTARTS:
        parts.append(f"restart {plan.job.attempt + 1} of {budgets.restarts_per_job}")
    made = plans.count_for(connection, plan.incident)
    parts.append(f"{made} of {budgets.plans_per_incident} plans of the incident")
    recent = len(plans.carried_out_since(connection, now - window.window_s))
    parts.append(
        f"{recent} of {window.actions_in_window} actions within {window.window_s:g} s before it"
    )
    parts.append("breaker open" if control.breaker_reason(connection) else "breaker closed")
    return "; ".join(parts)
