"""From a typed diagnosis, history and site policy to a plan: a pure, total function.

It reads no clock, file or cluster and never raises on valid input. Whatever is unknown, missing or
contradictory makes it refuse and say why. Log text reaches it only as a diagnosis; targets come
from the scheduler's allocation, and hardware actions need an observation from a source that the job
cannot write.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

from rerail.domain.diagnosis import Action, Outcome, Status
from rerail.domain.job import JobRef
from rerail.domain.plan import ActionKind, Mode, PlannedAction, RecoveryPlan, Risk
from rerail.recovery.site_policy import PolicyRule, SitePolicy
from rerail.recovery.situation import UNKNOWN_JOB, Situation, accused_nodes

STRENGTH = {Status.UNKNOWN: 0, Status.HYPOTHESIS: 1, Status.SUPPORTED: 2, Status.ESTABLISHED: 3}
# States in which the scheduler itself says why the attempt ended.
SCHEDULER_ENDED = frozenset({"TIMEOUT", "PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "DEADLINE"})
# COMPLETED is success, CANCELLED somebody's wish: neither is restarted.
ENDED_WELL = frozenset({"COMPLETED", "CANCELLED"})
OWNER_MUST_ACT = {
    Action.FIX_CODE: "the same code and input would fail again",
    Action.FIX_CONFIG: "the configuration has to change first",
    Action.FIX_DATA: "the data has to change first",
    Action.REDUCE_MEMORY: "the job needs less memory, or more of it, first",
    Action.FREE_SPACE: "space has to be freed first",
    Action.UPGRADE: "a library has to change first",
}
# What a restart usually mends; where it keeps happening on one node, it is the node.
MAY_BE_TRANSIENT = (Action.RESTART_AS_IS, Action.REQUEUE, Action.EXCLUDE_NODE)
COMMUNICATION = frozenset({"slow_network"})
NOTHING_TO_DO = (Action.NONE, Action.RESULTS_COMPLETE, Action.USER_STOP)


@dataclass
class _Draft:
    """Actions and refusals while they are being collected."""

    situation: Situation
    policy: SitePolicy
    rule: PolicyRule
    actions: list[PlannedAction] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)

    def refuse(self, why: str) -> None:
        self.refusals.append(why)

    def add(
        self,
        kind: ActionKind,
        because: str,
        *,
        target: str = "",
        risk: Risk = Risk.NONE,
        established: bool = False,
        undo: ActionKind | None = None,
        preconditions: tuple[str, ...] = (),
        verify: str = "",
        parameters: dict[str, Any] | None = None,
        leaves_nothing: bool = False,
    ) -> None:
        if kind is ActionKind.NOTIFY and self.situation.parent is not None:
            return  # one message for the parent, not one for each of its members
        reversible = risk is Risk.NONE or undo is not None or leaves_nothing
        automatic = risk is Risk.NONE or (
            self.rule.mode is Mode.AUTO_LOW
            and risk is Risk.LOW
            and reversible
            and established
            and self.situation.parent is None
        )
        self.actions.append(
            PlannedAction(
                step=len(self.actions) + 1,
                kind=kind,
                target=target,
                parameters=parameters or {},
                risk=risk,
                reversible=reversible,
                preconditions=preconditions,
                because=because,
                evidence=tuple(one.id for one in self.situation.diagnosis.evidence[:6]),
                needs_approval=not automatic,
                undo=undo,
                verify=verify,
            )
        )


def decide(situation: Situation, policy: SitePolicy) -> RecoveryPlan:
    """Return the plan for one incident. Pure and total.

    The plan's id is a digest of the incident and of the number of plans made for it before.
    """
    diagnosis = situation.diagnosis
    action = diagnosis.recovery.action
    if situation.stalled and action in (*NOTHING_TO_DO, Action.PAGE_HUMAN):
        # A job that hangs has not failed yet; the stall was measured by the watcher.
        action = Action.RESTART_AS_IS
    if situation.state in SCHEDULER_ENDED and action is Action.NONE:
        action = Action.REQUEUE
    rule = policy.rule_for(action, diagnosis.failure_type, situation.state)
    draft = _Draft(situation, policy, rule)
    if situation.parent is not None:
        draft.refuse(f"part of {situation.parent}: nothing is done without a person")
    if reason := _may_not_act(situation, policy, action):
        draft.refuse(reason)
        if not _is_quiet(situation, action):
            draft.add(ActionKind.NOTIFY, reason, parameters={"urgent": True})
    elif action in OWNER_MUST_ACT and not situation.slow:
        draft.refuse(f"not restarted: {OWNER_MUST_ACT[action]}")
        draft.add(ActionKind.NOTIFY, diagnosis.summary, parameters={"to": "owner"})
    elif situation.slow:
        _rebalance(draft)
        draft.add(ActionKind.NOTIFY, diagnosis.summary, parameters={"to": "owner"})
    elif action is Action.PAGE_HUMAN:
        draft.refuse("the verdict asks for a person")
        draft.add(ActionKind.NOTIFY, diagnosis.summary, parameters={"urgent": True})
    else:
        _recover(draft, action)
        draft.add(ActionKind.NOTIFY, diagnosis.summary, parameters={"to": "owner"})
    seed = f"{situation.incident}\0{situation.job.key}\0{situation.history.plans_for_incident}"
    return RecoveryPlan(
        id="P-" + hashlib.sha256(seed.encode()).hexdigest()[:8],
        incident=situation.incident,
        job=situation.job,
        rule=rule.id,
        mode=rule.mode,
        made_at=situation.now,
        expires_at=situation.now + policy.approvals.expires_s,
        actions=tuple(draft.actions),
        refusals=tuple(draft.refusals),
    )


def tell_of_parent(parent: str, root: str, job: JobRef, now: float) -> RecoveryPlan:
    """Return the plan of a parent incident: one message, and a person who decides for all."""
    tell = PlannedAction(
        step=1,
        kind=ActionKind.NOTIFY,
        parameters={"urgent": True},
        risk=Risk.NONE,
        reversible=True,
        because=f"several jobs failed at once and share {root}; nothing is restarted by itself",
        needs_approval=False,
    )
    return RecoveryPlan(
        id="P-" + hashlib.sha256(f"parent\0{parent}".encode()).hexdigest()[:8],
        incident=parent,
        job=job,
        rule="shared-root",
        mode=Mode.OBSERVE,
        made_at=now,
        expires_at=now + 86_400.0,
        actions=(tell,),
        refusals=("the members share one root: a person decides for all of them",),
    )


def undo_plan(plan: RecoveryPlan, step: int, now: float, expires_s: float) -> RecoveryPlan | None:
    """Return the plan that takes a step back, always with an approval; None where nothing can."""
    action = plan.action(step)
    if action is None or action.undo is None:
        return None
    light = action.undo in (ActionKind.UNDRAIN, ActionKind.MICRO_BATCHES)
    opposite = {ActionKind.UNDRAIN: ActionKind.DRAIN, ActionKind.MICRO_BATCHES: action.undo}
    verify = {
        ActionKind.UNDRAIN: "the node takes jobs again",
        ActionKind.MICRO_BATCHES: "the job reports the former split",
    }
    former = {
        "micro_batches": action.parameters.get("before"),
        "before": action.parameters.get("micro_batches"),
    }
    back = PlannedAction(
        step=1,
        kind=action.undo,
        target=action.target,
        parameters=former if action.undo is ActionKind.MICRO_BATCHES else {},
        risk=Risk.LOW if light else Risk.MEDIUM,
        reversible=light,
        because=f"takes back step {step} of {plan.id}",
        needs_approval=True,
        undo=opposite.get(action.undo),
        verify=verify.get(action.undo, ""),
    )
    seed = f"undo\0{plan.id}\0{step}\0{now}"
    return RecoveryPlan(
        id="P-" + hashlib.sha256(seed.encode()).hexdigest()[:8],
        incident=plan.incident,
        job=plan.job,
        rule="undo",
        mode=Mode.PROPOSE,
        made_at=now,
        expires_at=now + expires_s,
        actions=(back,),
    )


def _is_quiet(situation: Situation, action: Action) -> bool:
    return situation.state in ENDED_WELL and action in NOTHING_TO_DO


def _may_not_act(situation: Situation, policy: SitePolicy, action: Action) -> str:
    """Return why nothing but telling people may be done, or an empty string."""
    diagnosis, history = situation.diagnosis, situation.history
    if situation.job.job == UNKNOWN_JOB:
        return "no job is known for this incident: rerail diagnose PATH --job ID names one"
    if history.breaker_open:
        why = history.stopped or "the breaker is open"
        return f"{why}: nothing is done until a person lets it go on"
    if history.plans_for_incident >= policy.budgets.plans_per_incident:
        return f"{history.plans_for_incident} plans were made for this incident already"
    if situation.state in ENDED_WELL:
        return f"nothing to recover: the scheduler says {situation.state}"
    if situation.stalled or situation.state in SCHEDULER_ENDED:
        # The scheduler or the watcher itself knows that the attempt is over or stuck.
        return "nothing to recover" if action in NOTHING_TO_DO else ""
    if diagnosis.outcome is Outcome.NO_FAILURE or action in NOTHING_TO_DO:
        return f"the scheduler says {situation.state}, the logs show no failure to recover from"
    if diagnosis.outcome is not Outcome.FAILURE:
        return "the evidence is inconclusive"
    if STRENGTH[diagnosis.status] < STRENGTH[Status.SUPPORTED]:
        return f"the cause is only {diagnosis.status}: too weak to act on"
    return ""


def _established(draft: _Draft) -> bool:
    """Return whether the ground for acting on the job itself is firm enough for `auto-low`."""
    situation = draft.situation
    if situation.diagnosis.model is not None and situation.diagnosis.model.get("changed_verdict"):
        return False
    if situation.state in SCHEDULER_ENDED or situation.stalled:
        return True
    if situation.died_by_signal and situation.diagnosis.status is Status.SUPPORTED:
        return True  # the logs' word and accounting's word agree
    return STRENGTH[situation.diagnosis.status] >= STRENGTH[draft.rule.auto_from] >= 2


def _recover(draft: _Draft, action: Action) -> None:
    situation = draft.situation
    if situation.stalled:
        draft.add(
            ActionKind.COLLECT_DUMPS,
            "the job made no progress; its stacks say where it hangs",
            target=situation.job.job,
            risk=Risk.LOW,
            established=True,
            leaves_nothing=True,
            preconditions=("the job is running", "no progress since"),
            verify="dumps lie in the job's output",
        )
    drained: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    firm = True
    if action in (Action.DRAIN_NODE, Action.HEALTH_TESTS) or situation.state == "NODE_FAIL":
        failed = tuple(one.node for one in situation.attested if one.source == "healthcheck")
        undecided = action is Action.HEALTH_TESTS and situation.state != "NODE_FAIL"
        drained = _drain(draft, only=failed if undecided else None)
        excluded = drained
        if not drained and situation.state != "NODE_FAIL":
            if not situation.tested:
                _propose_tests(draft)
                return
            firm = False
            draft.refuse("the health tests found nothing wrong with the job's nodes")
    elif action is Action.EXCLUDE_NODE:
        excluded = _in_allocation(draft, situation.diagnosis.recovery.targets.nodes)
        if not excluded:
            draft.refuse("no suspect node lies in the job's allocation; nothing to exclude")
    if action in MAY_BE_TRANSIENT and situation.state not in SCHEDULER_ENDED:
        excluded = tuple(dict.fromkeys((*excluded, *_repeated(draft))))
    if reason := _no_restart(situation, draft.policy):
        draft.refuse(reason)
        return
    if situation.cannot_requeue:
        _submit_again(draft, action, excluded)
        return
    if action in (Action.ROLL_BACK, Action.ROLL_BACK_SKIP):
        _roll_back(draft, skip=action is Action.ROLL_BACK_SKIP)
        return
    _requeue(draft, excluded, firm=firm)


def _no_restart(situation: Situation, policy: SitePolicy) -> str:
    """Return why the job is not restarted once more, or an empty string."""
    history, budgets = situation.history, policy.budgets
    if history.restarts_without_progress >= budgets.restarts_without_progress:
        return f"restarted {history.restarts_without_progress} times without progress"
    if history.restarts >= budgets.restarts_per_job:
        return f"restarted {history.restarts} times; the limit of the policy is reached"
    return ""


def _in_allocation(draft: _Draft, nodes: list[str] | tuple[str, ...]) -> tuple[str, ...]:
    """Return the nodes that belong to the job; refuse the others aloud."""
    own = set(draft.situation.nodes)
    for node in nodes:
        if node not in own:
            draft.refuse(f"{node} is not in the job's allocation: the log may name any node")
    return tuple(dict.fromkeys(node for node in nodes if node in own))


def _often(draft: _Draft, node: str) -> str:
    """Return how often a node failed within the days of the policy, or "" where not too often."""
    repeats = draft.policy.repeats
    before = draft.situation.history.node_failures.get(node, 0)
    if before + 1 < repeats.failures:
        return ""
    return f"failure {before + 1} held against {node} within {repeats.window_days:g} days"


def _repeated(draft: _Draft) -> tuple[str, ...]:
    """Act on accused nodes that failed too often; return the nodes on which not to restart.

    Without an observation that the job cannot write, a repeated failure only keeps this job off the
    node and asks people to look: the counts rest on texts that jobs wrote.
    """
    accused = set(accused_nodes(draft.situation.diagnosis)) & set(draft.situation.nodes)
    repeated = [node for node in draft.situation.nodes if node in accused and _often(draft, node)]
    if not repeated:
        return ()
    witnessed = {fact.node for fact in draft.situation.attested}
    drained = _drain(draft, only=tuple(node for node in repeated if node in witnessed))
    others = [node for node in repeated if node not in drained]
    for node in others:
        if node not in witnessed:
            draft.refuse(
                f"{node} is not drained: {_often(draft, node)}, but neither kernel log, scheduler, "
                "DCGM nor health test accuses it now"
            )
    if others:
        draft.add(
            ActionKind.TICKET,
            f"{'; '.join(_often(draft, node) for node in others)}: test before it is used again",
            parameters={"nodes": others},
        )
    return tuple(repeated)


def _drain(draft: _Draft, *, only: tuple[str, ...] | None = None) -> tuple[str, ...]:
    """Add drain actions for proven nodes; return the nodes that will be drained.

    `only` takes these nodes in place of those that the diagnosis and the scheduler name.
    """
    situation, policy = draft.situation, draft.policy
    named = accused_nodes(situation.diagnosis)
    proven = {
        fact.node: fact
        # The strongest observation of a node is the last one here.
        for fact in sorted(situation.attested, key=lambda fact: fact.enough)
        if fact.enough or _often(draft, fact.node)
    }
    # The scheduler names the nodes that it lost, health tests those that failed; no log has to.
    sources = ("scheduler", "healthcheck") if situation.state == "NODE_FAIL" else ("healthcheck",)
    named += [fact.node for fact in situation.attested if fact.source in sources]
    if only is not None:
        named = list(only)
    if not named:
        if only is None:
            draft.refuse("no node is named: nothing to drain")
        return ()
    allowed = policy.budgets.nodes_allowed(situation.cluster_nodes)
    already = set(situation.history.nodes_drained_last_hour)
    drained: list[str] = []
    for node in _in_allocation(draft, tuple(dict.fromkeys(named))):
        if node not in proven:
            draft.refuse(
                f"{node} is not drained: only text that the job can write accuses it; "
                "neither kernel log, scheduler, DCGM nor health test does"
            )
        elif len(already | {node}) > allowed:
            draft.refuse(f"{node} is not drained: {allowed} nodes in an hour is the budget")
        elif situation.history.nodes_same_finding >= policy.breaker.nodes_same_finding:
            draft.refuse(f"{node} is not drained: too many nodes show the same finding at once")
        else:
            already.add(node)
            drained.append(node)
            fact = proven[node]
            often = _often(draft, node)
            draft.add(
                ActionKind.DRAIN,
                f"{fact.source}: {fact.what}" + (f"; {often}" if often else ""),
                target=node,
                risk=Risk.LOW,
                established=fact.enough
                and (
                    fact.source in ("scheduler", "healthcheck")
                    or situation.diagnosis.status is Status.ESTABLISHED
                ),
                undo=ActionKind.UNDRAIN,
                preconditions=("the node is in the job's allocation", "it is not drained yet"),
                verify="the scheduler shows the node as drained",
                parameters={"reason": situation.diagnosis.failure_type or situation.state.lower()},
            )
    if drained:
        draft.add(
            ActionKind.TICKET,
            "hardware to be looked at before the node returns",
            parameters={"nodes": drained},
        )
    return tuple(drained)


def _propose_tests(draft: _Draft) -> None:
    situation = draft.situation
    # All nodes of the job: a suspect can only be judged against partners.
    nodes = situation.nodes
    if not nodes:
        draft.refuse("the scheduler reports no nodes of this job: nothing to test")
        return
    draft.add(
        ActionKind.HEALTH_TESTS,
        "the logs alone do not prove which node is bad",
        target=situation.job.job,
        risk=Risk.MEDIUM,
        preconditions=("the nodes run no job",),
        verify="a report names the faulty nodes, or none",
        parameters={"nodes": list(nodes)},
    )


def _requeue(draft: _Draft, excluded: tuple[str, ...], *, firm: bool = True) -> None:
    kind = ActionKind.REQUEUE_EXCLUDING if excluded else ActionKind.REQUEUE
    elsewhere = f" without {', '.join(excluded)}" if excluded else ""
    draft.add(
        kind,
        f"the job continues from its last checkpoint{elsewhere}",
        target=draft.situation.job.job,
        risk=Risk.LOW,
        established=firm and _established(draft),
        undo=ActionKind.CANCEL,
        preconditions=("no later attempt has started",),
        verify="a later attempt runs and makes progress",
        parameters={
            **({"exclude": list(excluded)} if excluded else {}),
            **({"running": True} if draft.situation.stalled else {}),
        },
    )


def _submit_again(draft: _Draft, action: Action, excluded: tuple[str, ...]) -> None:
    """Plan for a job that the scheduler would not start again: a requeue of it must fail."""
    situation = draft.situation
    draft.refuse(f"not requeued: {situation.cannot_requeue}")
    if action in (Action.ROLL_BACK, Action.ROLL_BACK_SKIP) or situation.stalled:
        draft.refuse("not submitted again: its owner has to end it, or to choose the checkpoint")
    elif not situation.may_resubmit:
        how = f": {situation.submit_line}" if situation.submit_line else ""
        draft.refuse(f"its owner has to submit it again{how}")
    else:
        draft.add(
            ActionKind.RESUBMIT,
            "the job cannot be requeued; it is submitted again as its owner submitted it",
            target=situation.job.job,
            risk=Risk.MEDIUM,
            undo=ActionKind.CANCEL,
            preconditions=("the job has ended", "it was not submitted again yet"),
            verify="the new job runs",
            parameters={
                "submit_line": situation.submit_line,
                **({"exclude": list(excluded)} if excluded else {}),
            },
        )


def _rebalance(draft: _Draft) -> None:
    """Plan S2 for a job that runs slowly: fewer micro-batches for the slow groups."""
    # numpy is loaded only where a split is computed
    from rerail.recovery.mitigation.micro_batches import makespan_s, split

    situation, speeds = draft.situation, draft.situation.speeds
    if speeds is None:
        draft.refuse("micro-batches are left as they are: the job reports no speeds of its groups")
        return
    if speeds.communication or situation.diagnosis.failure_type in COMMUNICATION:
        draft.refuse("micro-batches are left as they are: moving them does not mend a slow network")
        return
    if situation.order_hindrance:
        draft.refuse(f"micro-batches are left as they are: {situation.order_hindrance}")
        return
    present, times = list(speeds.micro_batches), list(speeds.unit_time_s)
    wanted = split(times, sum(present))
    gain = 1.0 - makespan_s(times, wanted) / makespan_s(times, present)
    least = draft.policy.slow.least_gain_ratio
    if wanted == present or gain < least:
        draft.refuse(
            f"micro-batches are left as they are: a step would gain {gain:.3f} of its time, below {least:g}"
        )
        return
    draft.add(
        ActionKind.MICRO_BATCHES,
        f"the slowest group sets the pace; a step's computing gets {gain:.2f} of its time shorter",
        target=situation.job.job,
        risk=Risk.LOW,
        established=_established(draft),
        undo=ActionKind.MICRO_BATCHES,
        preconditions=("the job is running", "it still follows the split that was measured"),
        verify="the job reports the new split",
        parameters={"micro_batches": wanted, "before": present},
    )


def _roll_back(draft: _Draft, *, skip: bool) -> None:
    situation = draft.situation
    first, last = situation.bad_from, situation.bad_to
    if skip and (first is None or last is None or last < first):
        draft.refuse("not rolled back: which batches were bad is not known")
        return
    if situation.order_hindrance:
        draft.refuse(f"not rolled back: {situation.order_hindrance}")
        return
    usable = [one for one in situation.checkpoints if one.intact is not False]
    if skip and first is not None:
        # Step n is trained on batch n; the checkpoint of step n - 1 has not seen batch n.
        usable = [one for one in usable if one.step < first]
    if not usable:
        draft.refuse("not rolled back: there is no intact checkpoint from before the failure")
        return
    chosen = max(usable, key=lambda one: (one.step, one.path))
    broken = [one for one in situation.checkpoints if one.intact is False]
    parameters: dict[str, Any] = {"checkpoint": chosen.path, "step": chosen.step}
    if situation.stalled:
        parameters["running"] = True
    if skip:
        parameters["skip_batches"] = [first, last]
    why = f"checkpoint of step {chosen.step} is the newest usable one"
    if broken:
        why += f"; step {max(one.step for one in broken)} is damaged"
    draft.add(
        ActionKind.SKIP_DATA if skip else ActionKind.RESTART_FROM_CHECKPOINT,
        why,
        target=situation.job.job,
        risk=Risk.LOW,
        established=_established(draft) and chosen.intact is True,
        undo=ActionKind.CANCEL,
        preconditions=("no later attempt has started", "the checkpoint is still intact"),
        verify="a later attempt resumes from that step and passes the failure",
        parameters=parameters,
    )
