"""The policy as a function: whatever comes in, what comes out stays within the rules."""

import re
from pathlib import Path

import hypothesis.strategies as st
import pytest
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
from rerail.errors import ConfigError
from rerail.recovery.policy import NOTHING_TO_DO, OWNER_MUST_ACT, decide, undo_plan
from rerail.recovery.site_policy import Budgets, PolicyRule, SitePolicy, load_policy
from rerail.recovery.situation import (
    UNKNOWN_JOB,
    Attested,
    CheckpointFact,
    GroupSpeeds,
    History,
    Situation,
)

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
speeds = st.lists(st.tuples(st.floats(1e-6, 1e6), st.integers(1, 9)), min_size=1, max_size=5).map(
    lambda groups: GroupSpeeds(
        unit_time_s=tuple(time for time, _ in groups), micro_batches=tuple(n for _, n in groups)
    )
)
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
            source=st.sampled_from(["kernel", "scheduler", "dcgm", "healthcheck"]),
            node=NODES,
            what=st.text(max_size=9),
            enough=st.booleans(),
        ),
        max_size=3,
    ).map(tuple),
    died_by_signal=st.booleans(),
    stalled=st.booleans(),
    slow=st.booleans(),
    speeds=st.none() | speeds,
    tested=st.booleans(),
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
        node_failures=st.dictionaries(NODES, small, max_size=3),
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


@given(situations, policies)
def test_a_lesser_observation_drains_only_what_failed_too_often(situation, policy):
    enough = {fact.node for fact in situation.attested if fact.enough}
    often = {
        node
        for node, before in situation.history.node_failures.items()
        if before + 1 >= policy.repeats.failures
    }
    for one in decide(situation, policy).actions:
        if one.kind is ActionKind.DRAIN:
            assert one.target in enough | often
            # A person decides where the history tipped the scales.
            assert one.needs_approval or one.target in enough


@given(situations, policies)
def test_a_running_slow_job_is_never_restarted_and_never_loses_a_micro_batch(situation, policy):
    plan = decide(situation.model_copy(update={"slow": True, "stalled": False}), policy)
    kinds = {one.kind for one in plan.actions}
    if situation.state == "RUNNING":
        assert not kinds & (RESTARTS | {ActionKind.DRAIN, ActionKind.CANCEL})
    for one in plan.actions:
        if one.kind is ActionKind.MICRO_BATCHES:
            wanted, before = one.parameters["micro_batches"], one.parameters["before"]
            assert sum(wanted) == sum(before) and min(wanted) >= 1
            assert before == list(situation.speeds.micro_batches)


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


WITNESS = Attested(source="kernel", node="n2", what="Xid 94", enough=False)


def flaky(earlier, attested=()):
    """A fault that a restart usually mends, on a node with so many earlier failures."""
    found = diagnosis(Action.RESTART_AS_IS, nodes=["n2"], failure_type="gpu_ecc_contained")
    history = History(node_failures={"n2": earlier})
    return decide(situation(found, history=history, attested=attested), auto())


def test_the_third_failure_of_a_node_keeps_the_job_off_it_but_drains_only_with_a_witness():
    assert [one.kind for one in flaky(1).actions] == [ActionKind.REQUEUE, ActionKind.NOTIFY]
    ticket, requeue, _ = flaky(2).actions
    assert (ticket.kind, ticket.parameters) == (ActionKind.TICKET, {"nodes": ["n2"]})
    assert requeue.parameters == {"exclude": ["n2"]}
    assert any("failure 3 held against n2 within 7 days" in why for why in flaky(2).refusals)
    drain = flaky(2, (WITNESS,)).actions[0]
    assert (drain.kind, drain.target, drain.needs_approval) == (ActionKind.DRAIN, "n2", True)
    assert drain.because == "kernel: Xid 94; failure 3 held against n2 within 7 days"
    assert ActionKind.DRAIN not in {one.kind for one in flaky(1, (WITNESS,)).actions}


def test_a_failed_health_test_is_a_witness_even_where_the_logs_name_nobody_or_another():
    failed = Attested(source="healthcheck", node="n1", what="it failed the pairwise tests")
    for found in (diagnosis(Action.HEALTH_TESTS), diagnosis(Action.DRAIN_NODE, nodes=["n2"])):
        plan = decide(situation(found, attested=(failed,), tested=True), auto())
        drain, _, requeue, _ = plan.actions
        assert (drain.kind, drain.target, drain.needs_approval) == (ActionKind.DRAIN, "n1", False)
        assert requeue.parameters == {"exclude": ["n1"]}
        assert ActionKind.DRAIN not in {one.kind for one in plan.actions if one.target == "n2"}


def test_health_tests_that_find_nothing_are_not_repeated_and_a_person_decides():
    plan = decide(situation(diagnosis(Action.DRAIN_NODE, nodes=["n2"]), tested=True), auto())
    requeue, _ = plan.actions
    assert (requeue.kind, requeue.needs_approval) == (ActionKind.REQUEUE, True)
    assert "the health tests found nothing wrong with the job's nodes" in plan.refusals


def slow(**more):
    found = diagnosis(
        Action.HEALTH_TESTS,
        status=Status.SUPPORTED,
        failure_type=more.pop("failure_type", "fail_slow_unexplained"),
    )
    measured = GroupSpeeds(
        unit_time_s=more.pop("times", (0.1, 0.2, 0.1, 0.1)), micro_batches=(8, 8, 8, 8), **more
    )
    rules = (PolicyRule(id="auto", mode=Mode.AUTO_LOW, auto_from=Status.SUPPORTED),)
    return decide(
        situation(found, state="RUNNING", slow=True, speeds=measured), SitePolicy(rules=rules)
    )


def test_a_slow_group_gets_fewer_micro_batches_and_the_former_split_is_the_way_back():
    plan = slow()
    [move, _] = plan.actions
    assert (move.kind, move.needs_approval) == (ActionKind.MICRO_BATCHES, False)
    assert move.parameters["before"] == [8, 8, 8, 8]
    wanted = move.parameters["micro_batches"]
    assert max(wanted[0], 2 * wanted[1], wanted[2], wanted[3]) == 10  # it was 16
    [back] = undo_plan(plan, 1, 1.0, 60.0).actions
    assert (back.kind, back.parameters["micro_batches"]) == (ActionKind.MICRO_BATCHES, [8, 8, 8, 8])


def test_micro_batches_are_not_moved_for_a_slow_network_or_a_gain_that_is_noise():
    for plan in (
        slow(failure_type="slow_network"),
        slow(communication=True),
        slow(times=(0.1,) * 4),
    ):
        assert [one.kind for one in plan.actions] == [ActionKind.NOTIFY]
        assert any("micro-batches are left as they are" in why for why in plan.refusals)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("budgetz: {}", "budgetz"),
        ("rules: [{id: a, actions: [reboot]}]", r"rules\.0\.actions\.0"),
        ("rules: [{id: a, mode: always}]", r"rules\.0\.mode"),
        ("rules: [{id: a, failure_types: [cuda_oomm]}]", r"failure_types.*cuda_oom\?"),
        ("rules: [{id: a, states: [NODE_FAILED]}]", r"rules\.0\.states.*'NODE_FAILED'.*NODE_FAIL,"),
        ("rules: [{id: a, states: [failed]}]", r"rules\.0\.states.*accepted: FAILED"),
        ("rules: [{id: a, mode: Auto}]", r"rules\.0\.mode: 'Auto' is not accepted.*'auto-low'"),
        ("rules: [{id: a}, {id: a}]", r"rules: the id 'a' is taken"),
        ("rules: [{id: default}]", r"rules: the id 'default' is taken"),
        ('jobs: {checkpoints: "{foldr}/*.pt"}', r"jobs\.checkpoints: unknown field \{foldr\}"),
        ('jobs: {kernel_logs: ["{folder}/kern.log"]}', r"jobs\.kernel_logs.*the job can write"),
        ('jobs: {kernel_logs: ["/var/log/kern.log"]}', r"jobs\.kernel_logs.*has to hold \{node\}"),
        ("dry_run: true\nrules: []\ndry_run: false", "line 3: dry_run stands there twice"),
        ("budgets:\n  nodes_per_hour: 1\n  nodes_per_hour: 9", "line 3: nodes_per_hour"),
        ("budgets: {nodes_per_hour: many}", r"budgets\.nodes_per_hour"),
        ("jobs: {dump_signal: KILL}", r"jobs\.dump_signal"),
        ("- 1", "the file"),
        ("a: [", "no YAML"),
    ],
)
def test_a_wrong_policy_file_is_refused_by_the_name_of_its_key(tmp_path, text, key):
    path = tmp_path / "policy.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=key) as caught:
        load_policy(path)
    assert caught.value.hint and "\n" not in caught.value.message


def test_where_no_job_is_known_nothing_but_telling_is_planned():
    nobody = situation(diagnosis(Action.REQUEUE)).model_copy(
        update={"job": JobRef(job=UNKNOWN_JOB), "state": "UNKNOWN"}
    )
    plan = decide(nobody, auto())
    assert [one.kind for one in plan.actions] == [ActionKind.NOTIFY]
    assert "--job ID" in plan.refusals[0]


def test_the_policy_file_of_the_documentation_is_taken_as_it_stands(tmp_path):
    text = (Path(__file__).parents[2] / "docs/recovery.md").read_text(encoding="utf-8")
    (tmp_path / "policy.yaml").write_text(re.search(r"```yaml\n(.*?)```", text, re.S)[1])
    policy = load_policy(tmp_path / "policy.yaml")
    # Every key that there is stands in it.
    for name in type(policy).model_fields:
        assert name in policy.model_fields_set, name
    for name in type(policy.dcgm).model_fields:
        assert name in policy.dcgm.model_fields_set | {"jobs_cannot_listen", "limit_s"}, name


NO_REQUEUE = "it was submitted with --no-requeue, or slurm.conf says JobRequeue=0"


@pytest.mark.parametrize(
    "action", [Action.REQUEUE, Action.RESTART_AS_IS, Action.EXCLUDE_NODE, Action.ROLL_BACK]
)
@pytest.mark.parametrize("stalled", [False, True])
def test_no_plan_requeues_what_cannot_be_requeued(action, stalled):
    found = situation(
        diagnosis(action, nodes=["n2"]),
        cannot_requeue=NO_REQUEUE,
        submit_line="sbatch -N 2 job.sh",
        checkpoints=(CheckpointFact(path="c", step=4, intact=True),),
        stalled=stalled,
    )
    plan = decide(found, auto())
    kinds = {one.kind for one in plan.actions}
    assert kinds <= {ActionKind.NOTIFY, ActionKind.TICKET, ActionKind.COLLECT_DUMPS}
    assert ActionKind.NOTIFY in kinds and any(NO_REQUEUE in why for why in plan.refusals)


def test_what_cannot_be_requeued_is_submitted_again_only_with_an_approval():
    found = situation(
        diagnosis(Action.EXCLUDE_NODE, nodes=["n2"]),
        cannot_requeue=NO_REQUEUE,
        submit_line="sbatch -N 2 job.sh",
        may_resubmit="yes",
    )
    [again] = [one for one in decide(found, auto()).actions if one.kind is ActionKind.RESUBMIT]
    assert again.needs_approval and again.parameters["exclude"] == ["n2"]


@pytest.mark.parametrize("action", [Action.ROLL_BACK, Action.ROLL_BACK_SKIP])
def test_an_order_that_could_not_be_written_is_not_planned(action):
    found = situation(
        diagnosis(action),
        order_hindrance="/home/ann/run cannot be written by rerail",
        checkpoints=(CheckpointFact(path="c", step=4, intact=True),),
        bad_from=9,
        bad_to=9,
    )
    plan = decide(found, auto())
    assert [one.kind for one in plan.actions] == [ActionKind.NOTIFY]
    assert "cannot be written by rerail" in plan.refusals[0]
