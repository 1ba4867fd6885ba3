"""Events on their way: hook, spool, queue, incident, plan, parent; without a scheduler."""

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from rerail.assistant.watch.daemon import Daemon
from rerail.assistant.watch.evidence import prune_evidence
from rerail.assistant.watch.history import without_progress
from rerail.assistant.watch.hook import as_json, from_slurm, from_strigger, hook_command
from rerail.assistant.watch.site import Site
from rerail.domain.job import Allocation, JobEvent, JobRef, NodeEvent, NodeShare
from rerail.errors import RecoveryError
from rerail.knowledge_base.store.engine import open_store, reading, writing
from rerail.knowledge_base.store.incidents import list_incidents, timeline
from rerail.recovery import spool
from rerail.recovery.site_policy import JobLayout, Notify, PolicyRule, SitePolicy
from rerail.recovery.store import audit, plans, queue
from rerail.settings import Settings
from rerail.tools.clusters.slurm_read import SlurmReader
from rerail.tools.clusters.slurm_records import AttemptRecord, NodeRecord

KILLED = "srun: error: gpu-7: task 1: Killed\n"
STALE = "[rank0]: OSError: [Errno 116] Stale file handle: '/lustre/ckpt/step_20.pt'\n"
RERAIL = (sys.executable, "-c", "from rerail.assistant.cli.main import main; main()")


@pytest.fixture
def daemon(tmp_path):
    settings = Settings(data_dir=tmp_path / "data")
    policy = SitePolicy(
        jobs=JobLayout(group_wait_s=0), notify=Notify(file=str(tmp_path / "messages"))
    )
    engine = open_store(settings)
    yield Daemon(Site(settings, policy, tmp_path / "data", None), engine, say=lambda text: None)
    engine.dispose()


def leave(daemon, folder, job, text, nodes=("gpu-7", "gpu-8"), attempt=0):
    logs = folder / f"logs-{job}"
    logs.mkdir(exist_ok=True)
    (logs / "train.log").write_text(text)
    event = JobEvent(
        job=JobRef(cluster="c", job=job, attempt=attempt),
        source="t",
        state="FAILED",
        time="2026-01-01T00:00:00Z",
        logs=(str(logs),),
        allocation=Allocation(nodes=tuple(NodeShare(node=one) for one in nodes)),
    )
    spool.leave(daemon.site.data / spool.FOLDER, event.model_dump_json().encode())
    return event


def test_an_event_becomes_one_incident_with_a_plan_however_often_it_comes(daemon, tmp_path):
    event = leave(daemon, tmp_path, "1", KILLED)
    daemon.drain(30)
    leave(daemon, tmp_path, "1", KILLED)
    daemon.drain(30)
    with reading(daemon.engine) as connection:
        [incident] = list_incidents(connection)
        [plan] = plans.of_incident(connection, incident.id)
        kinds = [entry.kind for entry in timeline(connection, incident.id)]
        assert queue.counts(connection) == {"done": 1}
        assert audit.verify(connection).broken_at is None
    assert (incident.job, plan.job.key) == ("1", event.key)
    assert {"job_event", "diagnosed", "plan"} <= set(kinds)
    [message] = (tmp_path / "messages").read_text().splitlines()
    assert json.loads(message)["incident"] == incident.id


def test_jobs_that_fail_on_one_file_system_are_one_parent_and_one_message(daemon, tmp_path):
    for number in range(8):
        leave(daemon, tmp_path, str(number), STALE, nodes=(f"n{number}",))
        daemon.drain(30)
    with reading(daemon.engine) as connection:
        found = list_incidents(connection)
        [parent] = [one for one in found if one.job is None]
        members = [e for e in timeline(connection, parent.id) if e.kind == "member"]
    assert len(found) == 9 and len(members) == 8
    told = [json.loads(line) for line in (tmp_path / "messages").read_text().splitlines()]
    assert [one["incident"] for one in told].count(parent.id) == 1
    assert len(told) == 3  # two before it was known that they belong together, one for all


def test_what_is_no_event_is_set_aside(daemon):
    folder = daemon.site.data / spool.FOLDER
    spool.leave(folder, b"{")
    spool.leave(folder, b'{"job": 1}')
    daemon.drain(10)
    assert spool.waiting(folder).files == [] and len(list((folder / spool.REJECTED).iterdir())) == 2


def test_a_shared_spool_lets_the_daemon_s_group_read_and_a_private_one_nobody(tmp_path):
    assert os.stat(spool.leave(tmp_path / "own", b"{}")).st_mode & 0o777 == 0o600
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o2770)
    assert os.stat(spool.leave(tmp_path / "shared", b"{}")).st_mode & 0o777 == 0o640


@pytest.mark.parametrize("state", ["STALLED", "SLOW"])
def test_nobody_outside_can_say_that_a_running_job_stands_still(daemon, tmp_path, state):
    """The word would end the job: a label of a metric, which a job can write, must not give it."""
    event = leave(daemon, tmp_path, "1", KILLED)
    [path] = spool.waiting(daemon.site.data / spool.FOLDER).files
    path.write_text(event.model_copy(update={"state": state}).model_dump_json())
    daemon.drain(10)
    with reading(daemon.engine) as connection:
        assert queue.counts(connection) == {} and list_incidents(connection) == []
        [entry] = audit.entries(connection)
    assert entry.what == "event_refused" and state in entry.body["why"]


def test_an_event_of_another_cluster_reaches_no_scheduler_of_this_one(daemon, tmp_path):
    leave(daemon, tmp_path, "1", KILLED)
    daemon.site = replace(daemon.site, reader=SlurmReader())
    daemon.take_spool()
    with reading(daemon.engine) as connection:
        [entry] = audit.entries(connection)
        assert queue.counts(connection) == {}
    assert "'c' is not the one watched here" in entry.body["why"]


def test_of_a_shared_store_a_daemon_takes_its_own_clusters_events_alone(daemon, tmp_path):
    leave(daemon, tmp_path, "1", KILLED)
    daemon.take_spool()
    daemon.site = replace(daemon.site, reader=SlurmReader())
    assert daemon.work_off() == 0
    with reading(daemon.engine) as connection:
        assert queue.counts(connection) == {"waiting": 1}


def test_an_event_that_breaks_the_worker_does_not_stop_the_daemon(daemon, tmp_path, monkeypatch):
    leave(daemon, tmp_path, "1", KILLED)
    leave(daemon, tmp_path, "2", KILLED)
    whole = daemon.worker.work

    def broken(item):
        if item.event.job.job == "1":
            raise IsADirectoryError("slurmd.log")
        return whole(item)

    monkeypatch.setattr(daemon.worker, "work", broken)
    daemon.round()
    with reading(daemon.engine) as connection:
        assert queue.counts(connection) == {"waiting": 1, "done": 1}


def test_looking_at_a_plan_starts_nothing(daemon, tmp_path):
    """Nobody but a log named the job: where the site's rules would act, this plan asks."""
    from rerail.assistant.watch.on_request import plan_incident

    leave(daemon, tmp_path, "1", KILLED)
    daemon.drain(30)
    rules = (PolicyRule(id="r", mode="auto-low", auto_from="hypothesis"),)
    acting = replace(daemon.site, policy=SitePolicy(rules=rules, default_mode="auto-low"))
    with writing(daemon.engine) as connection:
        [incident] = list_incidents(connection)
        plan = plan_incident(connection, acting, incident.id)
    orders = [one for one in plan.actions if one.kind not in ("notify", "ticket")]
    assert plan.mode == "propose" and orders
    assert all(one.needs_approval for one in orders)


def test_slurms_environment_is_an_event_and_a_good_end_is_none(monkeypatch):
    # As EpilogSlurmctld and jobcomp/script gave it on a real 22.05.
    epilog = {"SLURM_JOB_ID": "7", "SLURM_JOB_EXIT_CODE2": "1:0", "SLURM_JOB_RESTART_COUNT": "2"}
    event = JobEvent.model_validate(from_slurm(epilog))
    assert (event.job.job, event.job.attempt, event.state, event.exit_code) == ("7", 2, "FAILED", 1)
    jobcomp = {"JOBID": "11", "JOBSTATE": "NODE_FAIL", "EXITCODE": "0:0"}
    assert from_slurm(jobcomp)["state"] == "NODE_FAIL"
    assert from_slurm({**epilog, "SLURM_JOB_EXIT_CODE2": "0:0"}) is None
    assert from_slurm({**jobcomp, "JOBSTATE": "COMPLETED"}) is None
    with pytest.raises(RecoveryError):
        from_slurm({"SLURM_JOB_ID": "7; reboot"})


@pytest.mark.parametrize("text", ["", "{", "[]", '{"job": {"job": "1"}}', "x" * (2 << 20)])
def test_the_hook_never_fails_the_scheduler(tmp_path, text):
    done = subprocess.run(
        [*RERAIL, "hook", "-"],
        input=text,
        text=True,
        capture_output=True,
        env={**os.environ, "RERAIL_DATA_DIR": str(tmp_path)},
        timeout=60,
        check=False,
    )
    assert done.returncode == 0 and done.stderr.startswith("rerail hook: ")
    assert "Traceback" not in done.stderr


def test_a_file_system_that_hangs_does_not_hold_up_the_scheduler(tmp_path):
    """The spool's write hangs as on a dead NFS server until the server comes back."""
    code = (
        "import sys, time; from pathlib import Path; from rerail.assistant.watch import hook\n"
        "leave, hook.LONGEST_S = hook.leave, 0.5\n"
        "def hang(*event):\n"
        "    while not Path(sys.argv[1]).exists(): time.sleep(0.05)\n"
        "    leave(*event)\n"
        "hook.leave = hang\n"
        "sys.exit(hook.hook_command(None, slurm=True, process=False, limit_s=1))"
    )
    back = tmp_path / "the server is back"
    done = subprocess.run(
        [sys.executable, "-c", code, str(back)],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "RERAIL_DATA_DIR": str(tmp_path),
            "SLURM_JOB_ID": "7",
            "SLURM_JOB_EXIT_CODE2": "1:0",
        },
        timeout=60,
        check=False,
    )
    assert done.returncode == 0 and "no answer from" in done.stderr
    assert spool.waiting(tmp_path / spool.FOLDER).files == []
    back.touch()
    deadline = time.monotonic() + 20
    while not spool.waiting(tmp_path / spool.FOLDER).files and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(spool.waiting(tmp_path / spool.FOLDER).files) == 1


@pytest.mark.parametrize(
    ("steps", "restarts"),
    [([24], 0), ([24, 24], 1), ([24, 24, None], 2), ([24, 40], 0), ([24, 24, 40, 40], 1)],
)
def test_restarts_without_progress_are_counted_from_the_last_progress(steps, restarts):
    assert without_progress(steps) == restarts


def test_old_evidence_goes_and_new_stays(tmp_path):
    for name, days in (("old", 31), ("new", 1)):
        folder = tmp_path / "cluster" / name / "job"
        folder.mkdir(parents=True)
        os.utime(folder.parent, (1e9 - 86_400 * days,) * 2)
    assert prune_evidence(tmp_path, 30, now=1e9) == 1
    assert [one.name for one in (tmp_path / "cluster").iterdir()] == ["new"]


@pytest.mark.parametrize(
    ("what", "argument", "nodes", "job"),
    [
        ("down", "gpu-[07-09,12],login1", ("gpu-07", "gpu-08", "gpu-09", "gpu-12", "login1"), ""),
        ("DRAINED", "n2", ("n2",), ""),
        ("fini", "4711", (), "4711"),
    ],
)
def test_strigger_gives_a_node_list_or_a_job(what, argument, nodes, job):
    event = NodeEvent.model_validate(from_strigger(what, argument))
    assert (event.what, event.nodes, event.job) == (what.lower(), nodes, job)


@pytest.mark.parametrize(
    ("what", "argument"),
    [("down", ""), ("down", "n[1-"), ("down", "4711"), ("fini", "n1"), ("up", "n1"),
     ("down", "n1;reboot"), ("down", "--all")],
)  # fmt: skip
def test_what_no_trigger_says_is_refused_and_the_hook_still_ends_well(tmp_path, what, argument):
    with pytest.raises(RecoveryError):
        from_strigger(what, argument)
    assert hook_command(Path(argument), slurm=False, process=False, limit_s=1, strigger=what) == 0


@dataclass
class FakeClock:
    now: float

    def __call__(self):
        return self.now


class FakeSlurm:
    """Answers as Slurm does while a node's jobs end one after the other."""

    def __init__(self):
        self.ended = []

    def ended_badly(self, since):
        return [one for one in self.ended if one.end >= since]

    def attempts(self, job):
        return [one for one in self.ended if one.job == job]

    def nodes(self, names=()):
        return [NodeRecord(name, "IDLE") for name in names]


def test_a_trigger_brings_the_jobs_that_ran_there_even_those_that_end_after_it(daemon):
    now = daemon.clock = FakeClock(time.time())
    daemon.site = replace(daemon.site, reader=FakeSlurm())
    slurm, data = daemon.site.reader, daemon.site.data / spool.FOLDER

    def trigger(what, argument):
        spool.leave(data, as_json(from_strigger(what, argument)).encode())

    def heard():
        daemon.take_spool()
        new = daemon.follow_triggers()
        now.now += 6
        return new

    slurm.ended = [AttemptRecord("1", 0, "NODE_FAIL", ("n2", "n3"), end=now())]
    trigger("down", "n[1-2]")
    assert (
        heard() == 1 and len(spool.waiting(data).files) == 1
    )  # followed on: a crash loses nothing
    slurm.ended += [
        AttemptRecord("2", 1, "NODE_FAIL", ("n1",), end=now()),
        AttemptRecord("3", 0, "FAILED", ("n9",), end=now()),  # on another node
        AttemptRecord("4", 0, "FAILED", ("n1",), end=now() - 3600),  # long before
    ]
    again = Daemon(daemon.site, daemon.engine, say=lambda text: None, clock=now)
    again.take_spool()
    assert again.follow_triggers() == 1 and heard() == 0
    now.now += 200
    assert heard() == 0 and spool.waiting(data).files == []
    trigger("fini", "3")
    assert heard() == 1
    with reading(daemon.engine) as connection:
        assert queue.counts(connection) == {"waiting": 3}
        told = queue.event_of(connection, f"{daemon.site.settings.cluster}/2/1")
    assert (told.source, told.state, told.extra["trigger"]) == (
        "slurm-strigger",
        "NODE_FAIL",
        "down",
    )


def test_a_trigger_without_a_scheduler_to_ask_is_refused_aloud(daemon):
    event = as_json(from_strigger("down", "n1"))
    spool.leave(daemon.site.data / spool.FOLDER, event.encode())
    daemon.drain(10)
    with reading(daemon.engine) as connection:
        [entry] = audit.entries(connection)
    assert "which jobs ran there" in entry.body["why"]
