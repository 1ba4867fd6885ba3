"""The policy as a function: whatever comes in, what comes out stays within the rules."""

import hypothesis.strategies as st
from hypothesis import given

from rerail.domain.diagnosis import (
    Action,
    Diagnosis,
    Outcome,
    Recovery,
    Status,
    Suspects,
    Targets,
)
from rerail.domain.job import JobRef
from rerail.domain.plan import ActionKind, Mode, Risk
from rerail.recovery.policy import (
    NOTHING_TO_DO,
    OWNER_MUST_ACT,
    Attested,
    CheckpointFact,
    History,
    Situation,
    decide,
)
from rerail.recovery.site_policy import Budgets, PolicyRule, SitePolicy

NODES = st.sampled_from(["n1", "n2", "n3", "n9", "-oProxy", ""])
RESTARTS = {
    ActionKind.REQUEUE,
    ActionKind.REQUEUE_EXCLUDING,
    ActionKind.RESTART_FROM_CHECKPOINT,
    ActionKind.SKIP_DATA,
}
TELLING = {ActionKind.NOTIFY, ActionKind.TICKET}


def diagnosis(action, outcome=Outcome.FAILURE, status=Status.ESTABLISHED, nodes=(), **more):
    return Diagnosis(
        outcome=outcome,
        status=status,
        failure_type=more.pop("failure_type", "gpu_fallen_off_bus"),
        category="x",
        layer=None,
        summary="s",
        first_fault=None,
        suspects=Suspects(nodes=list(nodes)),
        recovery=Recovery(action=action, targets=Targets(nodes=list(nodes))),
        **more,
    )


diagnoses = st.builds(
    diagnosis,
    st.sampled_from(list(Action)),
    st.sampled_from(list(Outcome)),
    st.sampled_from(list(Status)),
    st.lists(NODES, max_size=3),
)
small = st.integers(0, 6)
situations = st.builds(
    Situation,
    incident=st.just("INC-1"),
    job=st.builds(JobRef, job=st.just("7"), attempt=small),
    state=st.sampled_from(
        [
            "FAILED",
            "TIMEOUT",
            "NODE_FAIL",
            "PREEMPTED",
            "COMPLETED",
            "CANCELLED",
            "RUNNING",
            "",
            "?",
        ]
    ),
    nodes=st.lists(NODES, max_size=3).map(tuple),
    cluster_nodes=st.integers(-1, 2000),
    diagnosis=diagnoses,
    attested=st.lists(
        st.builds(
            Attested,
            source=st.sampled_from(["kernel", "scheduler", "dcgm"]),
            node=NODES,
            what=st.text(max_size=9),
        ),
        max_size=3,
    ).map(tuple),
    died_by_signal=st.booleans(),
    stalled=st.booleans(),
    checkpoints=st.lists(
        st.builds(
            CheckpointFact,
            path=st.text(max_size=5),
            step=small,
            intact=st.sampled_from([True, False, None]),
        ),
        max_size=3,
    ).map(tuple),
    bad_from=st.none() | small,
    bad_to=st.none() | small,
    history=st.builds(
        History,
        restarts=small,
        restarts_without_progress=small,
        plans_for_incident=small,
        nodes_drained_last_hour=st.lists(NODES, max_size=3).map(tuple),
        nodes_same_finding=small,
        breaker_open=st.booleans(),
    ),
    now=st.floats(0, 2e9),
)
policies = st.builds(
    SitePolicy,
    rules=st.lists(
        st.builds(
            PolicyRule,
            id=st.just("r"),
            mode=st.sampled_from(list(Mode)),
            auto_from=st.sampled_from(list(Status)),
        ),
        max_size=1,
    ).map(tuple),
    budgets=st.builds(Budgets, nodes_per_hour=small, restarts_without_progress=small),
)


@given(situations, policies)
def test_it_is_total_and_pure(situation, policy):
    assert decide(situation, policy).digest == decide(situation, policy).digest


@given(situations, policies)
def test_hardware_needs_a_witness_that_the_job_cannot_write_and_a_node_of_the_job(
    situation, policy
):
    witnesses = {fact.node for fact in situation.attested}
    drained = [
        one.target for one in decide(situation, policy).actions if one.kind is ActionKind.DRAIN
    ]
    assert set(drained) <= witnesses & set(situation.nodes)
    after = set(drained) | set(situation.history.nodes_drained_last_hour)
    if drained:
        assert len(after) <= policy.budgets.nodes_allowed(situation.cluster_nodes)


@given(situations, policies)
def test_nothing_but_telling_is_automatic_outside_auto_low(situation, policy):
    plan = decide(situation, policy)
    for one in plan.actions:
        if not one.needs_approval and one.kind not in TELLING:
            assert plan.mode is Mode.AUTO_LOW
            assert one.risk is Risk.LOW and one.reversible


@given(situations, policies)
def test_weak_evidence_an_open_breaker_and_spent_budgets_only_tell(situation, policy):
    kinds = {one.kind for one in decide(situation, policy).actions}
    weak = (
        not situation.stalled
        and situation.state not in ("TIMEOUT", "PREEMPTED", "NODE_FAIL")
        and (
            situation.diagnosis.outcome is not Outcome.FAILURE
            or situation.diagnosis.status in (Status.UNKNOWN, Status.HYPOTHESIS)
        )
    )
    history = situation.history
    spent = history.plans_for_incident >= policy.budgets.plans_per_incident
    if weak or history.breaker_open or spent:
        assert kinds <= TELLING
    if history.restarts_without_progress >= policy.budgets.restarts_without_progress:
        assert not kinds & RESTARTS


@given(situations, policies)
def test_what_the_owner_has_to_mend_is_never_restarted(situation, policy):
    plan = decide(situation, policy)
    if situation.diagnosis.recovery.action in OWNER_MUST_ACT:
        assert not {one.kind for one in plan.actions} & RESTARTS


@given(situations, policies)
def test_a_roll_back_never_lands_on_a_damaged_or_poisoned_checkpoint(situation, policy):
    for one in decide(situation, policy).actions:
        if one.kind in (ActionKind.SKIP_DATA, ActionKind.RESTART_FROM_CHECKPOINT):
            chosen = [c for c in situation.checkpoints if c.path == one.parameters["checkpoint"]]
            assert any(c.intact is not False for c in chosen)
            if one.kind is ActionKind.SKIP_DATA:
                assert one.parameters["step"] < situation.bad_from <= situation.bad_to


@given(situations, policies)
def test_every_plan_says_something(situation, policy):
    plan = decide(situation, policy)
    quiet = (
        situation.state in ("COMPLETED", "CANCELLED")
        or situation.diagnosis.recovery.action in NOTHING_TO_DO
    )
    assert plan.actions or (plan.refusals and quiet)


def auto(**more):
    return SitePolicy(rules=(PolicyRule(id="auto", mode=Mode.AUTO_LOW),), **more)


def situation(found, **more):
    return Situation(
        incident="INC-1",
        job=JobRef(job="7"),
        state=more.pop("state", "FAILED"),
        nodes=("n1", "n2"),
        cluster_nodes=64,
        diagnosis=found,
        now=1.0,
        **more,
    )


def test_a_forged_xid_drains_nothing_and_restarts_nothing():
    plan = decide(situation(diagnosis(Action.DRAIN_NODE, nodes=["n2"])), auto())
    assert {one.kind for one in plan.actions if not one.needs_approval} == {ActionKind.NOTIFY}
    assert any("n2 is not drained" in why for why in plan.refusals)


def test_the_same_xid_in_the_kernel_log_drains_and_requeues_elsewhere():
    witness = Attested(source="kernel", node="n2", what="Xid 79")
    plan = decide(
        situation(diagnosis(Action.DRAIN_NODE, nodes=["n2"]), attested=(witness,)), auto()
    )
    drain, ticket, requeue, _ = plan.actions
    assert (drain.kind, drain.target, drain.needs_approval) == (ActionKind.DRAIN, "n2", False)
    assert ticket.kind is ActionKind.TICKET
    assert (requeue.kind, requeue.parameters) == (
        ActionKind.REQUEUE_EXCLUDING,
        {"exclude": ["n2"]},
    )


def test_a_lost_node_is_drained_on_the_schedulers_word_alone():
    lost = Attested(source="scheduler", node="n1", what="down, not responding")
    found = diagnosis(Action.NONE, Outcome.INCONCLUSIVE, Status.UNKNOWN, failure_type=None)
    plan = decide(situation(found, state="NODE_FAIL", attested=(lost,)), auto())
    kinds = [one.kind for one in plan.actions if not one.needs_approval]
    assert kinds[0] is ActionKind.DRAIN and ActionKind.REQUEUE_EXCLUDING in kinds


def test_without_a_policy_file_nothing_but_telling_happens():
    witness = Attested(source="kernel", node="n2", what="Xid 79")
    plan = decide(
        situation(diagnosis(Action.DRAIN_NODE, nodes=["n2"]), attested=(witness,)), SitePolicy()
    )
    assert plan.mode is Mode.OBSERVE
    assert {one.kind for one in plan.actions if not one.needs_approval} <= TELLING


def test_poisoned_data_goes_back_to_the_newest_checkpoint_before_it():
    found = diagnosis(Action.ROLL_BACK_SKIP, failure_type="loss_nan")
    saved = tuple(CheckpointFact(path=f"c{n}", step=n, intact=n != 20) for n in (10, 20, 30))
    plan = decide(situation(found, checkpoints=saved, bad_from=26, bad_to=26), auto())
    assert plan.actions[0].parameters == {"checkpoint": "c10", "step": 10, "skip_batches": [26, 26]}
