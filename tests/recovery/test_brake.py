"""A stop that stops, a policy that is read again, and failures that reach people."""

import json

import pytest
from sqlalchemy import select, update

from rerail.domain.job import JobRef
from rerail.domain.plan import ActionKind, ActionState, Mode, PlannedAction, RecoveryPlan, Risk
from rerail.errors import ClusterError
from rerail.knowledge_base.store.engine import reading, writing
from rerail.recovery import approvals
from rerail.recovery.brake import Brake, brake_for
from rerail.recovery.clusters.writer import Check
from rerail.recovery.executor import Executor
from rerail.recovery.live_policy import open_policy
from rerail.recovery.site_policy import Notify, SitePolicy
from rerail.recovery.store import control, outbox, plans

KEY = b"k" * 32
ACTING = "dry_run: false\ndefault_mode: auto-low\n"


class Cluster:
    """Does two commands for an action; `between` runs before the first, `error` is how it ends."""

    def __init__(self):
        self.done, self.between, self.error = [], lambda: None, None

    def commands(self, action, job, incident):
        return [["first", action.target], ["second", action.target]]

    def preconditions(self, action, job):
        return ""

    def carry_out(self, action, job, incident, before):
        self.between()  # a job that is cleaned up for twenty seconds, for example
        for command in self.commands(action, job, incident):
            before(command)
            if self.error:
                raise self.error
            self.done.append(command[0])

    def effect(self, action, job):
        return Check.DONE if self.done else Check.ABSENT

    def running_elsewhere(self, action, job):
        return Check.DONE


@pytest.fixture
def cluster():
    return Cluster()


@pytest.fixture
def site(engine, clock, cluster, tmp_path):
    """Return the executor of a daemon that began under an acting policy."""
    (tmp_path / "policy.yaml").write_text(ACTING)
    live = open_policy(tmp_path / "policy.yaml")
    policy = live.began.model_copy(update={"notify": Notify(file=str(tmp_path / "messages"))})
    return Executor(
        *(engine, policy, KEY, clock, lambda plan: cluster),
        live=live,
        brake=brake_for(tmp_path, [str(tmp_path / "etc" / "STOP")]),
    )


@pytest.fixture
def step(engine, clock):
    def make(name="P-1", approval=False, target="n1"):
        action = PlannedAction(
            step=1,
            kind=ActionKind.DRAIN,
            target=target,
            risk=Risk.LOW,
            reversible=True,
            because="b",
            needs_approval=approval,
        )
        plan = RecoveryPlan(
            id=name,
            incident="INC-1",
            job=JobRef(job="7"),
            rule="default",
            mode=Mode.AUTO_LOW,
            made_at=clock(),
            expires_at=clock() + 1800,
            actions=(action,),
        )
        with writing(engine) as connection:
            plans.save(connection, plan, KEY)
            if approval:
                approvals.approve(
                    *(connection, KEY, plan, 1), by="ann", policy=SitePolicy(), now=clock()
                )
        return plan

    return make


def row(engine, plan):
    with reading(engine) as connection:
        return plans.states(connection, plan)[0]


def told(tmp_path):
    path = tmp_path / "messages"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


STOPS = {
    "the breaker": lambda engine, path: open_breaker(engine),
    "the stop file": lambda engine, path: (path / "STOP").touch(),
    "another stop file": lambda engine, path: [(path / "etc").mkdir(), (path / "etc/STOP").touch()],
    "a dead link as stop file": lambda engine, path: (path / "STOP").symlink_to("nowhere"),
    "dry_run": lambda engine, path: (path / "policy.yaml").write_text("dry_run: true\n"),
    "a broken policy": lambda engine, path: (path / "policy.yaml").write_text("dry_run: [\n"),
    "a vanished policy": lambda engine, path: (path / "policy.yaml").unlink(),
}


def open_breaker(engine):
    with writing(engine) as connection:
        control.trip(connection, "something is wrong", by="ann")


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("approved", [False, True])
def test_every_stop_holds_before_the_next_step(
    site, step, engine, cluster, tmp_path, stop, approved
):
    plan = step(approval=approved)
    STOPS[stop](engine, tmp_path)
    for _ in range(3):
        site.advance()
    assert cluster.done == []
    assert row(engine, plan).state is not ActionState.VERIFYING


@pytest.mark.parametrize("stop", STOPS)
def test_every_stop_holds_for_a_step_that_waits_just_before_its_first_command(
    site, step, engine, cluster, tmp_path, stop
):
    """As while Slurm cleans up after a job: the executor is inside the step already."""
    plan = step()
    cluster.between = lambda: STOPS[stop](engine, tmp_path)
    site.advance()
    assert cluster.done == [] and row(engine, plan).state is ActionState.FAILED
    assert told(tmp_path)[0]["kind"] == "step_failed"


def test_a_step_that_has_begun_is_finished(site, step, engine, cluster, tmp_path):
    """A job that is held and not released would wait for ever."""
    plan = step()
    done = cluster.done

    class Stopping(list):
        def append(self, item):
            list.append(self, item)
            (tmp_path / "STOP").touch()

    cluster.done = Stopping(done)
    site.advance()
    assert cluster.done == ["first", "second"]
    assert row(engine, plan).state is ActionState.VERIFIED


def test_a_policy_that_was_changed_holds_what_runs_by_itself_until_it_is_as_it_was(
    site, step, engine, cluster, tmp_path
):
    plan = step()
    (tmp_path / "policy.yaml").write_text(ACTING + "budgets: {nodes_per_hour: 9}\n")
    site.advance()
    assert cluster.done == [] and row(engine, plan).state is ActionState.PROPOSED
    assert "was changed" in site.held()
    # What a person approves now is judged by the file of now.
    approved = step("P-2", approval=True, target="n2")
    site.advance()
    assert row(engine, approved).state is ActionState.VERIFIED
    (tmp_path / "policy.yaml").write_text(ACTING)
    site.advance()
    assert site.held() == "" and row(engine, plan).state is ActionState.VERIFIED


def test_a_stop_file_that_cannot_be_looked_for_stops(tmp_path):
    (tmp_path / "file").write_text("")
    assert "cannot be looked for" in Brake((tmp_path / "file" / "STOP",)).stop_file()
    assert Brake((tmp_path / "STOP",)).stop_file() == ""


FORBIDDEN = ClusterError("scontrol update: slurm_update error: Invalid user id")
AWAY = ClusterError("Unable to contact slurm controller", recoverable=True)


def test_what_a_permission_forbids_is_tried_once_and_told_with_the_commands_own_error(
    site, step, engine, clock, cluster, tmp_path
):
    cluster.error = FORBIDDEN
    plan = step()
    for _ in range(4):
        site.advance()
        clock.now += 100
    [message] = told(tmp_path)
    assert "Invalid user id" in message["text"] and message["urgent"] and message["step"] == 1
    assert row(engine, plan).tries == 0
    with reading(engine) as connection:
        assert plans.commands_run(connection, plan.id, 1) == ["first n1"]


def test_what_may_pass_is_tried_again_and_told_once(site, step, engine, clock, cluster, tmp_path):
    cluster.error = AWAY
    plan = step()
    site.advance()
    clock.now += 10
    site.advance()
    assert [one["kind"] for one in told(tmp_path)] == ["step_unknown"]
    cluster.error = None
    clock.now += 10
    site.advance()
    assert row(engine, plan).state is ActionState.VERIFIED and len(told(tmp_path)) == 1


def test_a_message_that_cannot_be_delivered_is_kept_and_delivered_later(
    site, step, engine, clock, cluster, tmp_path
):
    cluster.error = FORBIDDEN
    (tmp_path / "messages").mkdir()
    said = []
    site.say = said.append
    step()
    site.advance()
    clock.now += 5
    site.advance()
    assert len(said) == 1 and "not told" in said[0]
    (tmp_path / "messages").rmdir()
    clock.now += 600
    site.advance()
    assert len(told(tmp_path)) == 1
    clock.now += 600
    site.advance()
    assert len(told(tmp_path)) == 1


def test_a_crash_between_a_failure_and_its_message_loses_no_message(
    site, step, engine, clock, cluster, tmp_path, monkeypatch
):
    cluster.error = FORBIDDEN
    step()
    monkeypatch.setattr(site, "tell", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        site.advance()
    monkeypatch.undo()
    site.advance()
    assert len(told(tmp_path)) == 1


def test_a_plan_that_was_altered_is_told_to_people(site, step, engine, tmp_path):
    plan = step()
    body = plan.model_copy(update={"rule": "other"}).model_dump(mode="json")
    with writing(engine) as connection:
        connection.execute(update(plans.PLANS).values(body=body))
    with pytest.raises(Exception, match="changed after"):
        site.advance()
    site.advance()
    [message] = told(tmp_path)
    assert message["kind"] == "plan_refused"
    with reading(engine) as connection:
        assert list(outbox.due(connection, 1e12)) == []
        assert connection.execute(select(plans.ACTIONS.c.state)).scalar() == "failed"
