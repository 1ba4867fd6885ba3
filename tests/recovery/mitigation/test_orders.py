"""From a slow group to a new split: the job measures, rerail plans and orders, the job follows."""

import json
import os
import threading
from pathlib import Path

import pytest
from sqlalchemy import select

from rerail.assistant.watch.daemon import Daemon
from rerail.assistant.watch.site import Site
from rerail.assistant.watch.waste import Waste
from rerail.domain.job import JobRef
from rerail.domain.plan import ActionKind, ActionState, Mode
from rerail.errors import RecoveryError
from rerail.knowledge_base.store.engine import reading
from rerail.recovery.job_file import JobFile
from rerail.recovery.mitigation.loop import MicroBatchPlan
from rerail.recovery.mitigation.orders import Measured, read_order, read_speeds, write_order
from rerail.recovery.site_policy import JobLayout, PolicyRule, SitePolicy, Slow
from rerail.recovery.situation import GroupSpeeds
from rerail.recovery.store import plans
from rerail.recovery.store.tables import PLANS
from rerail.settings import Settings
from rerail.tools.clusters.slurm_outputs import Outputs
from rerail.tools.clusters.slurm_read import JobFiles
from rerail.tools.clusters.slurm_records import AttemptRecord, NodeRecord


class FakeReader:
    """One job that runs in a folder; nothing else is asked of a scheduler here."""

    def __init__(self, folder):
        self.folder = folder
        self.record = AttemptRecord("7", 0, "RUNNING", ("n1", "n2"), start=1.0, uid=os.getuid())

    def attempts(self, job):
        return [self.record]

    def running(self):
        return [self.record]

    def ended_badly(self, since):
        return []

    def nodes(self, names=()):
        return [NodeRecord(name, "ALLOCATED") for name in names or ("n1", "n2")]

    def files(self, job):
        return JobFiles(str(self.folder / "out"), None, str(self.folder))

    def outputs(self, attempt):
        return Outputs()

    def save_logs(self, attempt, folder):
        return []

    def cannot_requeue(self, job):
        return ""


class Job:
    """Groups of a training loop in threads, with micro-batch times that are told, not slept."""

    def __init__(self, folder, times, total=16):
        self.times, self.folder = times, folder
        self.barrier = threading.Barrier(len(times))
        self.box = [0.0] * len(times)
        self.loops = [
            MicroBatchPlan(
                group,
                len(times),
                total,
                self.gather(group),
                every=1,
                record=folder / "speeds.jsonl",
                orders=folder / "micro_batches.json",
            )
            for group in range(len(times))
        ]

    def gather(self, group):
        def give(value):
            self.box[group] = value
            self.barrier.wait(10)
            seen = list(self.box)
            self.barrier.wait(10)
            return seen

        return give

    def step(self, count=1):
        def run(group):
            for _ in range(count):
                self.loops[group].ran(self.times[group])
                self.loops[group].after_step()

        threads = [threading.Thread(target=run, args=(group,)) for group in range(len(self.times))]
        for one in threads:
            one.start()
        for one in threads:
            one.join()

    @property
    def counts(self):
        [counts] = {tuple(one.counts) for one in self.loops}  # all groups always agree
        return list(counts)


@pytest.fixture
def daemon(tmp_path, engine, clock):
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "out").write_text("".join(f"step {n} loss 1.0\n" for n in range(1, 9)))

    def make(**rule):
        policy = SitePolicy(
            dry_run=False,
            rules=(PolicyRule(id="slow", failure_types=("fail_slow_unexplained",), **rule),),
            slow=Slow(after_lost_s=10.0),
            jobs=JobLayout(
                speeds="{folder}/speeds.jsonl",
                micro_batch_file="{folder}/micro_batches.json",
                group_wait_s=0,
            ),
        )
        site = Site(
            Settings(data_dir=tmp_path / "data"), policy, tmp_path / "data", FakeReader(folder)
        )
        return Daemon(
            site, engine, say=lambda text: None, clock=clock, steady=clock, poll_s=1.0
        ), folder

    return make


def look(daemon, clock):
    clock.now += 2.0
    daemon.round()


def moves(engine):
    with reading(engine) as connection:
        names = connection.execute(select(PLANS.c.id).order_by(PLANS.c.made_at)).scalars()
        found = [plans.load(connection, name) for name in list(names)]
        return [
            (row.action, row.state)
            for plan in found
            for row in plans.states(connection, plan)
            if row.action.kind is ActionKind.MICRO_BATCHES
        ]


def test_a_slow_group_gets_less_work_by_itself_where_the_policy_allows_it(daemon, engine, clock):
    watching, folder = daemon(mode=Mode.AUTO_LOW, auto_from="supported")
    job = Job(folder, [0.1, 0.1, 0.1, 0.4])
    job.step(3)
    look(watching, clock)
    assert moves(engine) == []  # nothing has been lost yet
    job.step(20)  # (1.6 - 0.6) s a step
    look(watching, clock)
    [(action, state)] = moves(engine)
    assert (action.parameters["before"], state) == ([4, 4, 4, 4], ActionState.VERIFYING)
    job.step(2)
    assert job.counts == action.parameters["micro_batches"]
    assert sum(job.counts) == 16 and job.counts[3] < 4
    look(watching, clock)
    [(_, state)] = moves(engine)
    assert state is ActionState.VERIFIED
    job.step(40)
    look(watching, clock)
    assert len(moves(engine)) == 1  # nothing is left to gain


def test_without_a_rule_that_allows_it_a_slow_job_is_only_told_of(daemon, engine, clock):
    watching, folder = daemon()
    job = Job(folder, [0.1, 0.1, 0.1, 0.4])
    job.step(3)
    look(watching, clock)
    job.step(30)
    look(watching, clock)
    job.step(2)
    assert [state for _, state in moves(engine)] == [ActionState.PROPOSED]
    assert job.counts == [4, 4, 4, 4] and not (folder / "micro_batches.json").exists()


def test_nobody_follows_an_order_that_not_all_groups_have_read(tmp_path):
    order = tmp_path / "orders.json"
    write_order(JobFile(order), [3, 1], "P-1")
    seen = [[0.1, 0.1], [1.0, 0.0], [0.1, 0.1], [1.0, 1.0]]  # times, then the numbers of the orders
    loop = MicroBatchPlan(0, 2, 4, lambda value: seen.pop(0), every=1, orders=order)
    loop.ran(0.1)
    assert not loop.after_step() and loop.counts == [2, 2]
    loop.ran(0.1)
    assert loop.after_step() and loop.counts == [3, 1]


@pytest.mark.parametrize("counts", [[4, 4], [1, 2, 1], [5, -1]])
def test_an_order_that_does_not_fit_the_job_is_not_followed(tmp_path, counts):
    order = tmp_path / "orders.json"
    order.write_text(json.dumps({"number": 1, "micro_batches": counts}))
    loop = MicroBatchPlan(0, 2, 4, lambda value: [value, value], every=1, orders=order)
    loop.ran(0.1)
    assert not loop.after_step() and loop.counts == [2, 2]


def test_an_order_is_given_once_and_a_damaged_one_is_named(tmp_path):
    path = tmp_path / "orders.json"
    for _ in range(2):
        write_order(JobFile(path), [3, 1], "P-1")
    assert read_order(path).number == 1
    write_order(JobFile(path), [2, 2], "P-2")
    assert read_order(path).number == 2
    path.write_text("{")
    with pytest.raises(RecoveryError, match=r"orders\.json"):
        read_order(path)


def test_only_a_usable_line_of_the_jobs_own_file_is_a_measurement(tmp_path):
    path = tmp_path / "speeds.jsonl"
    good = {"step": 4, "unit_time_s": [0.1, 0.2], "micro_batches": [2, 2]}
    bad = [{**good, "unit_time_s": [0.1, -1]}, {**good, "micro_batches": [4]}, {"step": 9}, []]
    path.write_text("\n".join(map(json.dumps, [good, *bad])) + '\n{"step": 5, "unit')
    assert read_speeds(path).step == 4
    assert read_speeds(path, uid=path.stat().st_uid + 1) is None
    assert read_speeds(Path("/dev/zero")) is None
    assert read_speeds(tmp_path / "absent") is None


def test_relief_and_a_new_split_forget_what_was_lost():
    def at(step, slow=0.4, counts=(4, 4)):
        return Measured(step, GroupSpeeds(unit_time_s=(0.1, slow), micro_batches=counts))

    waste = Waste()
    waste.add(at(0), 0.05)
    assert waste.add(at(10), 0.05) == pytest.approx(10 * (1.6 - 0.7))
    assert waste.add(at(11, slow=0.1), 0.05) == 0.0
    assert waste.add(at(21), 0.05) > 0
    assert waste.add(at(31, counts=(6, 2)), 0.05) == 0.0


def test_a_job_without_a_place_for_orders_says_which_key_is_missing(tmp_path):
    policy = SitePolicy(jobs=JobLayout(speeds="{folder}/s"))
    site = Site(Settings(data_dir=tmp_path), policy, tmp_path, FakeReader(tmp_path))
    with pytest.raises(RecoveryError, match="where the job reads") as caught:
        site.job_writer().rehearse(None, JobRef(job="7"), "INC-1")
    assert caught.value.subject == "jobs.micro_batch_file"
