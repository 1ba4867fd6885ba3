"""The gate and the executor: once, only as approved, and never blindly after a crash."""

import threading
from dataclasses import dataclass, field

import pytest
from sqlalchemy import insert, select, text, update

from rerail.domain.job import JobRef
from rerail.domain.plan import ActionKind, ActionState, Mode, PlannedAction, RecoveryPlan, Risk
from rerail.errors import ClusterError, RecoveryError
from rerail.knowledge_base.store.engine import open_store, reading, writing
from rerail.knowledge_base.store.migrate import upgrade
from rerail.recovery import approvals
from rerail.recovery.clusters.writer import Check
from rerail.recovery.executor import RESTARTS, Executor
from rerail.recovery.job_file import JobFile
from rerail.recovery.readiness import records
from rerail.recovery.rehearsal import Rehearsal, budget_left, jobs_touched, rehearse
from rerail.recovery.site_policy import Approvals, Breaker, SitePolicy
from rerail.recovery.store import audit, control, plans
from rerail.recovery.store.tables import ACTIONS, APPROVALS, PLANS
from rerail.settings import Settings
from rerail.tools.clusters.slurm_records import AttemptRecord

KEY = b"k" * 32


@dataclass
class FakeCluster:
    """A cluster that counts what was done to it; `script` makes the next calls fail."""

    done: list = field(default_factory=list)
    script: list = field(default_factory=list)
    refuses: str = ""
    after: Check = Check.DONE

    def commands(self, action, job, incident):
        return [["fake", str(action.kind), action.target]]

    def preconditions(self, action, job):
        return self.refuses

    def rehearse(self, action, job, incident):
        if "rehearse" in self.script:
            raise ClusterError("forbidden by admission")
        return "tried"

    def carry_out(self, action, job, incident, before=lambda command: None):
        fate = self.script.pop(0) if self.script else "works"
        if fate == "away":
            raise ClusterError("controller away", recoverable=True)
        self.done.append((str(action.kind), action.target))
        if fate == "works, answer lost":
            raise ClusterError("timed out", recoverable=True)
        if fate == "crash":
            raise KeyboardInterrupt

    def effect(self, action, job):
        return Check.DONE if (str(action.kind), action.target) in self.done else Check.ABSENT

    def running_elsewhere(self, action, job):
        return self.after


@pytest.fixture
def cluster():
    return FakeCluster()


def step(number, kind=ActionKind.DRAIN, target="n2", approval=True, risk=Risk.LOW):
    return PlannedAction(
        step=number,
        kind=kind,
        target=target,
        risk=risk,
        reversible=True,
        because="because",
        needs_approval=approval,
        undo=ActionKind.UNDRAIN,
    )


@pytest.fixture
def make_plan(engine, clock):
    def make(*actions, mode=Mode.PROPOSE, name="P-1"):
        plan = RecoveryPlan(
            id=name,
            incident="INC-1",
            job=JobRef(job="7"),
            rule="r",
            mode=mode,
            made_at=clock(),
            expires_at=clock() + 1800,
            actions=actions or (step(1),),
        )
        with writing(engine) as connection:
            plans.save(connection, plan, KEY)
        return plan

    return make


@pytest.fixture
def executor(engine, clock, cluster, tmp_path):
    def make(worker="here:1", **policy):
        return Executor(
            engine,
            SitePolicy(
                dry_run=policy.pop("dry_run", False),
                default_mode=policy.pop("mode", Mode.AUTO_LOW),
                **policy,
            ),
            KEY,
            clock,
            writer_for=lambda plan: cluster,
            restart_file=lambda plan: JobFile(tmp_path / "restart.json"),
            live_step=lambda plan: int(clock.now),
            worker=worker,
        )

    return make


def state(engine, plan, number=1):
    with reading(engine) as connection:
        rows = plans.states(connection, plan)
    return next(one for one in rows if one.action.step == number).state


def approve(engine, plan, now, by="ann", number=1, **policy):
    with writing(engine) as connection:
        return approvals.approve(
            connection, KEY, plan, number, by=by, policy=SitePolicy(**policy), now=now
        )


def test_nothing_happens_without_an_approval_and_once_with_one(
    engine, clock, cluster, make_plan, executor
):
    plan = make_plan()
    executor().advance()
    assert cluster.done == [] and state(engine, plan) is ActionState.PROPOSED
    assert approve(engine, plan, clock()) == "approved"
    assert approve(engine, plan, clock(), by="bob") == "already"
    for _ in range(3):
        executor().advance()
    assert cluster.done == [("drain", "n2")]
    assert state(engine, plan) is ActionState.VERIFIED


def test_many_executors_at_once_act_once(engine, clock, cluster, make_plan, executor):
    plan = make_plan()
    approve(engine, plan, clock())
    gate = threading.Barrier(4)

    def race(number):
        gate.wait()
        executor(worker=f"other{number}:1").advance()

    threads = [threading.Thread(target=race, args=(n,)) for n in range(4)]
    [one.start() for one in threads]
    [one.join() for one in threads]
    assert cluster.done == [("drain", "n2")]


def test_a_forged_approval_in_the_database_executes_nothing(
    engine, clock, cluster, make_plan, executor
):
    plan = make_plan()
    with writing(engine) as connection:
        connection.execute(
            insert(APPROVALS).values(
                plan=plan.id,
                step=1,
                digest=plan.digest,
                target="n2",
                decision="approved",
                by="chat",
                made_at=clock(),
                expires_at=clock() + 99,
                signature="0" * 64,
            )
        )
        row = plans.states(connection, plan)[0]
        plans.move(connection, row, ActionState.APPROVED, actor="chat", now=clock(), not_before=0.0)
    executor().advance()
    assert cluster.done == [] and state(engine, plan) is ActionState.FAILED


def test_an_approval_of_another_plan_does_not_hold(engine, clock, make_plan):
    plan, other = make_plan(), make_plan(step(1, target="n3"), name="P-2")
    approve(engine, plan, clock())
    with reading(engine) as connection:
        assert approvals.approvers(connection, KEY, plan, plan.actions[0], clock()) == {"ann"}
        [row] = connection.execute(select(APPROVALS)).all()
    assert not approvals.valid(KEY, other, other.actions[0], row, clock())
    assert not approvals.valid(b"x" * 32, plan, plan.actions[0], row, clock())
    assert not approvals.valid(KEY, plan, plan.actions[0], row, clock() + 1800)


def test_an_approval_expires_before_execution(engine, clock, cluster, make_plan, executor):
    plan = make_plan()
    approve(engine, plan, clock())
    clock.now += 1801
    executor().advance()
    assert cluster.done == []


def test_a_step_that_nobody_approves_expires_and_costs_nothing_until_then(
    engine, clock, make_plan, executor
):
    plan = make_plan()
    with reading(engine) as connection:
        assert plans.plans_with(connection, clock(), ActionState.PROPOSED) == []
    clock.now += 1801
    executor().advance()
    assert state(engine, plan) is ActionState.EXPIRED


def test_a_risky_step_needs_two_persons(engine, clock, cluster, make_plan, executor):
    plan = make_plan(step(1, risk=Risk.HIGH))
    assert approve(engine, plan, clock()) == "waiting"
    assert approve(engine, plan, clock()) == "waiting"  # the same person is one person
    executor().advance()
    assert cluster.done == []
    assert approve(engine, plan, clock(), by="bob") == "approved"
    executor().advance()
    assert cluster.done


def test_who_may_not_approve_and_what_only_observes(engine, clock, make_plan):
    plan = make_plan()
    with pytest.raises(RecoveryError, match="none of the approvers"):
        approve(engine, plan, clock(), by="eve", approvals=Approvals(approvers=("ann",)))
    with pytest.raises(RecoveryError, match="only observes"):
        approve(engine, make_plan(mode=Mode.OBSERVE, name="P-3"), clock())


def test_a_precondition_that_no_longer_holds_voids_the_step(
    engine, clock, cluster, make_plan, executor
):
    plan = make_plan()
    approve(engine, plan, clock())
    cluster.refuses = "n2 is drained already"
    executor().advance()
    assert cluster.done == [] and state(engine, plan) is ActionState.FAILED


@pytest.mark.parametrize(("fate", "times"), [("away", 1), ("works, answer lost", 1)])
def test_a_controller_that_goes_away_is_asked_first_and_acted_on_once(
    engine, clock, cluster, make_plan, executor, fate, times
):
    plan = make_plan(step(1, approval=False), mode=Mode.AUTO_LOW)
    cluster.script = [fate]
    executor().advance()
    assert state(engine, plan) is ActionState.UNKNOWN
    clock.now += 120
    executor().advance()
    assert cluster.done == [("drain", "n2")] * times
    assert state(engine, plan) is ActionState.VERIFIED


@pytest.mark.parametrize("happened", [True, False])
def test_after_a_crash_it_verifies_before_anything_else(
    engine, clock, cluster, make_plan, executor, happened
):
    plan = make_plan(step(1, approval=False), mode=Mode.AUTO_LOW)
    cluster.script = ["crash"]
    with pytest.raises(KeyboardInterrupt):
        executor().advance()
    assert state(engine, plan) is ActionState.EXECUTING
    if not happened:
        cluster.done.clear()
    executor(worker="elsewhere:2").advance()  # its claim holds: nobody else touches the step
    assert state(engine, plan) is ActionState.EXECUTING
    clock.now += 121
    executor(worker="elsewhere:2").advance()
    assert cluster.done == [("drain", "n2")]
    assert state(engine, plan) is ActionState.VERIFIED


def test_a_job_is_only_verified_once_it_makes_progress(engine, clock, cluster, make_plan, executor):
    requeue = step(1, kind=ActionKind.REQUEUE, target="7", approval=False)
    plan = make_plan(requeue, mode=Mode.AUTO_LOW)
    one = executor()
    one.advance()
    assert state(engine, plan) is ActionState.VERIFYING
    with reading(engine) as connection:
        assert plans.verified_since(connection, 0.0, RESTARTS) == {}
    clock.now += 1  # the fake job's step is the clock
    one.advance()
    assert state(engine, plan) is ActionState.VERIFIED
    with reading(engine) as connection:
        assert plans.verified_since(connection, 0.0, RESTARTS) == {"INC-1": clock()}
        assert plans.verified_since(connection, clock() + 1, RESTARTS) == {}
        assert plans.verified_since(connection, 0.0, (ActionKind.DRAIN,)) == {}


def test_a_restart_whose_attempt_fails_again_has_failed(
    engine, clock, cluster, make_plan, executor
):
    plan = make_plan(
        step(1, kind=ActionKind.REQUEUE, target="7", approval=False), mode=Mode.AUTO_LOW
    )
    cluster.after = Check.ABSENT
    executor().advance()
    assert state(engine, plan) is ActionState.FAILED


def test_dry_run_is_the_default_and_touches_nothing(engine, clock, cluster, make_plan, executor):
    plan = make_plan(step(1, approval=False), mode=Mode.AUTO_LOW)
    assert SitePolicy().dry_run
    executor(dry_run=True).advance()
    assert cluster.done == [] and state(engine, plan) is ActionState.PROPOSED


def test_the_breaker_opens_on_a_burst_and_only_a_person_closes_it(
    engine, clock, cluster, make_plan, executor
):
    for number in range(6):
        make_plan(
            step(1, kind=ActionKind.CANCEL, target=str(number), approval=False),
            mode=Mode.AUTO_LOW,
            name=f"P-{number}",
        )
    executor(breaker=Breaker(actions_in_window=3)).advance()
    assert len(cluster.done) == 3
    clock.now += 1e6
    make_plan(step(1, target="late", approval=False), mode=Mode.AUTO_LOW, name="P-late")
    executor(breaker=Breaker(actions_in_window=3)).advance()
    assert len(cluster.done) == 3
    with writing(engine) as connection:
        assert "3 actions" in control.breaker_reason(connection)
        assert control.close_breaker(connection, "ann", "looked at it")
        assert not control.breaker_reason(connection)
        assert audit.verify(connection).broken_at is None


def test_a_plan_changed_in_the_database_is_not_executed(
    engine, clock, cluster, make_plan, executor
):
    from rerail.recovery.store.tables import PLANS

    plan = make_plan()
    approve(engine, plan, clock())
    with writing(engine) as connection:
        body = plan.model_dump(mode="json")
        body["actions"][0]["target"] = "n9"
        connection.execute(PLANS.update().values(body=body))
    with pytest.raises(RecoveryError, match="was changed"):
        executor().advance()
    assert cluster.done == []


def test_an_automatic_step_that_comes_too_late_is_not_done(
    engine, clock, cluster, make_plan, executor
):
    """The daemon was away for longer than the plan holds."""
    plan = make_plan(step(1, approval=False), mode=Mode.AUTO_LOW)
    clock.now = plan.expires_at
    executor().advance()
    assert (state(engine, plan), cluster.done) == (ActionState.EXPIRED, [])


def test_a_plan_of_another_cluster_is_left_alone(engine, clock, cluster, make_plan, executor):
    """The same job number exists there too."""
    plan = make_plan(step(1, approval=False), mode=Mode.AUTO_LOW)
    here = executor()
    here.cluster = "elsewhere"
    assert here.advance() == 0
    assert (state(engine, plan), cluster.done) == (ActionState.PROPOSED, [])


def test_a_rehearsal_reads_everything_and_does_nothing(make_plan, executor, engine, cluster, clock):
    def tried(plan, **policy):
        with reading(engine) as connection:
            row = plans.states(connection, plan)[0]
        return rehearse(executor(**policy), row, clock())

    plan = make_plan()
    assert tried(plan) == Rehearsal("", "tried")
    assert "dry_run: true" in tried(plan, dry_run=True).hindrance
    cluster.refuses = "n2 is drained already"
    assert tried(plan).hindrance == "n2 is drained already"
    cluster.refuses, cluster.script = "", ["rehearse"]
    assert tried(plan).hindrance == "forbidden by admission"
    cluster.script = []
    assert "only observes" in tried(make_plan(mode=Mode.OBSERVE, name="P-2")).hindrance
    with writing(engine) as connection:
        control.trip(connection, "a burst")
    assert "a burst" in tried(plan).hindrance
    clock.now += 3600
    assert "expired" in tried(plan).hindrance
    assert cluster.done == [] and tried(plan).said == ""


def test_the_jobs_that_a_step_touches_are_those_on_its_nodes_or_the_job_itself():
    running = [
        AttemptRecord("7", 0, "RUNNING", ("n1", "n2")),
        AttemptRecord("8", 0, "RUNNING", ("n2",)),
        AttemptRecord("9", 0, "RUNNING", ("n3",)),
    ]

    def touched(kind, target="7", **parameters):
        action = step(1, kind, target).model_copy(update={"parameters": parameters})
        return jobs_touched(running, action, JobRef(job="7"))

    assert touched(ActionKind.DRAIN, "n2") == ("7", "8")
    assert touched(ActionKind.HEALTH_TESTS, nodes=["n3", "n4"]) == ("9",)
    assert touched(ActionKind.CANCEL) == ("7",)
    assert touched(ActionKind.REQUEUE) == ()
    assert touched(ActionKind.REQUEUE, running=True) == ("7",)


def test_a_budget_is_told_as_what_the_step_would_use_up(make_plan, executor, engine, clock):
    policy = SitePolicy(dry_run=False)
    first, second = (
        make_plan(step(1, approval=False), mode=Mode.AUTO_LOW),
        make_plan(step(1, target="n3"), name="P-2"),
    )
    executor().advance()
    with reading(engine) as connection:
        said = budget_left(
            *(connection, policy, second, second.actions[0]), cluster_nodes=200, now=clock()
        )
    assert said.startswith("node 2 of 3 in an hour; 2 of 2 plans") and "1 of 20" in said
    assert said.endswith("breaker closed") and first.id == "P-1"


def test_a_rule_is_ready_when_people_agreed_often_enough_in_a_row(engine, make_plan):
    policy = SitePolicy(default_mode=Mode.PROPOSE)

    def decide(name, state, number=1):
        plan = make_plan(name=name)
        with writing(engine) as connection:
            row = plans.states(connection, plan)[0]
            plans.move(connection, row, state, actor="ann", now=row.changed_at + number)

    def missing(needed):
        with reading(engine) as connection:
            (record,) = [one for one in records(connection, policy) if one.rule == "r"]
        record.mode = Mode.PROPOSE
        return record.missing(needed)

    decide("P-1", ActionState.REJECTED)
    assert "rejected" in missing(2)
    decide("P-2", ActionState.VERIFIED)
    decide("P-3", ActionState.EXPIRED)  # nobody decided
    assert missing(1) == "" and "rejected" in missing(2)
    decide("P-4", ActionState.VERIFIED)
    assert missing(2) == ""
    with reading(engine) as connection:
        gone = [one for one in records(connection, policy) if one.rule == "r"]
    assert "no such rule" in gone[0].missing(1)


def rewrite(engine, plan, *, digest=True, **changes):
    """Change a stored plan as somebody would who can only write to the database."""
    forged = plan.model_copy(update=changes)
    values = {"body": forged.model_dump(mode="json")}
    if digest:
        values["digest"] = forged.digest
    with writing(engine) as connection:
        connection.execute(update(PLANS).where(PLANS.c.id == plan.id).values(**values))
    return forged


def test_a_plan_rewritten_in_the_database_is_refused_and_told(
    engine, clock, make_plan, executor, cluster
):
    auto = make_plan(step(1, approval=False), mode=Mode.AUTO_LOW)
    told = []
    run = executor()
    run.on_change = lambda row, state, note: told.append(note)
    rewrite(engine, auto, actions=(step(1, target="innocent", approval=False),))
    run.advance()
    assert cluster.done == [] and state(engine, auto) is ActionState.FAILED
    assert "altered" in told[-1]
    # Nor can a person be led to approve one: its approval would bind what the other wrote.
    asked = make_plan(name="P-2")
    forged = rewrite(engine, asked, actions=(step(1, target="innocent"),))
    with pytest.raises(RecoveryError, match="altered"):
        approve(engine, forged, clock())
    # A signature of another site's key, or taken from another plan, fits no better.
    third = make_plan(name="P-3")
    with writing(engine) as connection:
        other = plans.why_untrusted(connection, third, b"x" * 32)
        stolen = select(PLANS.c.signature).where(PLANS.c.id == "P-3").scalar_subquery()
        connection.execute(update(PLANS).where(PLANS.c.id == "P-2").values(signature=stolen))
        assert "altered" in other and "altered" in plans.why_untrusted(connection, forged, KEY)


def test_a_plan_that_cannot_be_read_is_closed_once_and_holds_up_nobody(
    engine, clock, make_plan, executor, cluster
):
    broken = make_plan(step(1, approval=False), mode=Mode.AUTO_LOW)
    rewrite(engine, broken, digest=False, expires_at=clock() + 1e6)
    make_plan(step(1, target="n3", approval=False), mode=Mode.AUTO_LOW, name="P-2")
    with pytest.raises(RecoveryError, match="was changed after it was made"):
        executor().advance()
    assert executor().advance() >= 0 and cluster.done == [("drain", "n3")]
    with reading(engine) as connection:
        entries = [one.what for one in audit.entries(connection, "P-1")]
        assert audit.verify(connection).broken_at is None
    assert entries.count("plan_refused") == 1


def test_a_plan_from_before_plans_were_signed_is_read_and_never_executed(
    settings, clock, cluster, executor, engine, make_plan
):
    plan = make_plan(step(1, approval=False), mode=Mode.AUTO_LOW)
    with writing(engine) as connection:  # what migration 0003 leaves of a plan of 0002
        connection.execute(update(PLANS).values(signature=None))
    with reading(engine) as connection:
        assert plans.load(connection, plan.id) == plan
    executor().advance()
    assert cluster.done == []
    with reading(engine) as connection:
        [row] = plans.states(connection, plan)
    assert row.state is ActionState.FAILED and "not signed" in row.note


def test_a_store_of_the_revision_before_is_brought_up_with_its_plans(tmp_path):
    older = open_store(Settings(data_dir=tmp_path), migrate=False)
    upgrade(older, to="0002")
    row = "'P-1', 'INC-1', 'c', '7', 0, 'd', 1.0, 2.0, '{}'"
    with writing(older) as connection:
        connection.execute(text(f"INSERT INTO recovery_plans VALUES ({row})"))
    upgrade(older)
    with reading(older) as connection:
        assert connection.execute(select(PLANS.c.id, PLANS.c.signature)).all() == [("P-1", None)]
    older.dispose()


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.PROPOSE])
def test_what_the_policy_of_now_does_not_allow_is_not_done_by_itself(
    engine, clock, cluster, make_plan, executor, mode
):
    """A plan of yesterday's policy: its rule has been set back since."""
    plan = make_plan(step(1, approval=False), mode=Mode.AUTO_LOW)
    executor(mode=mode).advance()
    assert (state(engine, plan), cluster.done) == (ActionState.FAILED, [])


@pytest.mark.parametrize("change", [{"risk": Risk.MEDIUM}, {"reversible": False}])
def test_what_is_risky_or_final_is_never_done_by_itself(
    engine, clock, cluster, make_plan, executor, change
):
    action = step(1, approval=False).model_copy(update=change)
    plan = make_plan(action, mode=Mode.AUTO_LOW)
    executor().advance()
    assert (state(engine, plan), cluster.done) == (ActionState.FAILED, [])


def test_a_finished_step_set_back_in_the_database_is_not_done_again(
    engine, clock, make_plan, executor, cluster, tmp_path
):
    plan = make_plan(step(1, approval=False), mode=Mode.AUTO_LOW)
    run = executor()
    run.memory = tmp_path / "finished"
    run.advance()
    assert cluster.done == [("drain", "n2")] and state(engine, plan) is ActionState.VERIFIED
    cluster.refuses = ""  # somebody has taken the node back: the preconditions hold again
    with writing(engine) as connection:
        connection.execute(update(ACTIONS).values(state="proposed", not_before=0.0))
    run.advance()
    assert len(cluster.done) == 1 and state(engine, plan) is ActionState.FAILED
    with reading(engine) as connection:
        assert "set back" in plans.states(connection, plan)[0].note


def test_who_may_decide_can_be_named_for_each_kind_of_action(engine, clock, make_plan):
    plan = make_plan(step(1), step(2, ActionKind.REQUEUE, "7"), step(3, ActionKind.CANCEL, "7"))
    rights = Approvals(approvers=("ann",), approvers_of={ActionKind.DRAIN: ("bob",)})

    def may(person, number):
        try:
            with writing(engine) as connection:
                approvals.reject(
                    *(connection, KEY, plan, number),
                    by=person,
                    why="",
                    policy=SitePolicy(approvals=rights),
                    now=clock(),
                )
        except RecoveryError:
            return False
        return True

    assert [may("eve", 1), may("bob", 2), may("bob", 1), may("ann", 2)] == [
        False,
        False,
        True,
        True,
    ]
    # Named for one kind alone: the others stay with whoever can sign.
    rights = Approvals(approvers_of={ActionKind.DRAIN: ("bob",)})
    assert may("eve", 3) and rights.names_somebody
