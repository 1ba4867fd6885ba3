"""Logs of slurmd, slurmctld and the kernel, as the policy and slurm.conf name them: of one job, and of one start of it."""

import os
import socket
import time

import pytest

from rerail.assistant.locate.gather import gather
from rerail.assistant.locate.job_name import job_name
from rerail.assistant.pipeline import diagnose_paths
from rerail.recovery.site_policy import JobLayout

START = 1_700_000_000  # of the job of conftest.py, which runs for 500 s
FELL = "NVRM: Xid (PCI:0000:9b:00): 79, pid=4242, name=python, GPU has fallen off the bus."
OOM = "[7.0] error: Detected 1 oom-kill event(s) in StepId=7.0. Some of your processes may have been killed"


def of_slurm(at, text):
    """Return a line as Slurm's daemons write it, in local time."""
    return time.strftime("[%Y-%m-%dT%H:%M:%S", time.localtime(START + at)) + f".250] {text}\n"


def of_kernel(at, node, text=FELL):
    return time.strftime("%b %e %H:%M:%S", time.localtime(START + at)) + f" {node} kernel: {text}\n"


@pytest.fixture
def logs(tmp_path):
    """A folder that only system accounts may write to."""
    folder = tmp_path / "system"
    folder.mkdir()
    return folder


@pytest.fixture
def look(asked, slurm):
    slurm.uid = 4_000_000  # not the account that owns the logs of this test
    slurm.states = ["FAILED"]

    def run(job="7", attempt=None, **layout):
        asked(JobLayout(**layout))
        with gather(job_name(job), 20.0, attempt) as found:
            texts = {one.name: one.path.read_text() for one in found.evidence.sources}
            verdict = diagnose_paths([], located=found.evidence).diagnosis
        missing = " | ".join(f"{one.subject}: {one.why}" for one in found.evidence.problems)
        return texts, missing, verdict

    return run


def test_slurmd_s_logs_are_read_where_the_policy_names_them(look, logs):
    for node in ("n1", "n2", "n3"):
        (logs / f"slurmd.{node}.log").write_text(
            of_slurm(-900, "[6.0] done with job")
            + of_slurm(300, "[6.0] error: another job")
            + of_slurm(310, OOM)
            + of_slurm(9000, "[7.0] error: long after the end")
        )
    texts, _, verdict = look(scheduler_logs=(f"{logs}/slurmd.{{node}}.log",))
    kept = f"\n\n{of_slurm(310, OOM)}\n"  # under the number that the line has in the file
    assert {name: text for name, text in texts.items() if "slurmd" in name} == {
        f"{logs}/slurmd.n1.log": kept,
        f"{logs}/slurmd.n2.log": kept,
    }
    assert verdict.failure_type == "cgroup_oom_kill"
    assert (verdict.first_fault.file, verdict.first_fault.line) == (f"{logs}/slurmd.n1.log", 3)


def test_the_controller_s_log_is_read_under_both_ids_of_a_task(look, logs, slurm):
    slurm.shown = "5_3"
    told = (
        "sched: Allocate JobId=5_3(7) NodeList=n[1-2]",
        "error: Nodes n2 not responding: JobId=7 StepId=0",
    )
    (logs / "slurmctld.log").write_text(
        of_slurm(1, told[0]) + of_slurm(2, "sched: Allocate JobId=5_33(77)") + of_slurm(3, told[1])
    )
    texts, _, _ = look("5_3", scheduler_logs=(f"{logs}/slurmctld.log",))
    kept = f"{of_slurm(1, told[0])}\n{of_slurm(3, told[1])}"
    assert texts[f"{logs}/slurmctld.log"] == kept


def test_logs_that_slurm_conf_names_are_read_on_this_host(look, logs, slurm):
    host = socket.gethostname().split(".")[0]
    slurm.config = f"SlurmctldLogFile = {logs}/ctld\nSlurmdLogFile           = {logs}/%n/d.log\n"
    for name in ("ctld", "n1/d.log"):
        (logs / name).parent.mkdir(exist_ok=True)
        (logs / name).write_text(of_slurm(310, OOM))
    texts, missing, _ = look()
    assert {f"{logs}/ctld", f"{logs}/n1/d.log"} <= set(texts)
    assert f"log of Slurm's daemons: {logs}/n2/d.log: is not there" in missing
    slurm.config = f"SlurmdLogFile = {logs}/%h.log\n"
    (logs / f"{host}.log").write_text(of_slurm(310, OOM))
    assert f"{logs}/{host}.log" in look()[0]


def test_what_tells_nothing_of_the_job_or_may_be_forged_is_said(look, logs):
    (logs / "quiet.log").write_text(of_slurm(300, "[6.0] error: another job"))
    (logs / "open.log").write_text(of_slurm(310, OOM))
    (logs / "open.log").chmod(0o666)
    layout = {"scheduler_logs": (f"{logs}/quiet.log", f"{logs}/open.log", f"{logs}/none.log")}
    texts, missing, _ = look(**layout, kernel_logs=(f"{logs}/{{node}}.kern",))
    assert not any(str(logs) in name for name in texts)
    assert f"{logs}/quiet.log: holds no line of this attempt" in missing
    assert f"{logs}/open.log: is no witness" in missing
    assert f"{logs}/none.log: is not there" in missing
    assert f"kernel log of n2: {logs}/n2.kern: is not there" in missing


@pytest.fixture
def requeued(slurm):
    """A job that runs again four seconds after a node of it was lost."""
    slurm.pause = 4

    def states(*names):
        slurm.states = list(names)

    states("NODE_FAIL", "FAILED")
    return slurm


def test_attempts_that_follow_each_other_at_once_are_kept_apart_in_all_logs(look, logs, requeued):
    # The first ran until 500 and was removed until 503, the second began at 504.
    first = of_slurm(499, "[7.0] error: the first") + of_slurm(503, "[7.0] done with the first")
    second = of_slurm(504, "[7.0] launches the second") + of_slurm(600, OOM)
    (logs / "slurmd.n1.log").write_text(first + second)
    before = of_kernel(400, "n1") + of_kernel(503, "n1", "NVRM: shutdown")
    after = of_kernel(504, "n1", "NVRM: loading") + of_kernel(900, "n1", "NVRM: second")
    (logs / "n1.kern").write_text(before + after)
    layout = {
        "scheduler_logs": (f"{logs}/slurmd.{{node}}.log",),
        "kernel_logs": (f"{logs}/{{node}}.kern",),
    }
    texts, _, verdict = look(attempt=0, **layout)
    assert texts[f"{logs}/slurmd.n1.log"] == first + "\n\n"
    assert texts[f"{logs}/n1.kern"] == before + "\n\n"
    assert verdict.failure_type == "gpu_fallen_off_bus"
    texts, _, verdict = look(attempt=1, **layout)
    assert texts[f"{logs}/slurmd.n1.log"] == "\n\n" + second
    assert texts[f"{logs}/n1.kern"] == "\n\n" + after
    assert verdict.failure_type == "cgroup_oom_kill"


def test_attempts_that_follow_each_other_at_once_are_kept_apart_in_their_files(asked, requeued):
    asked()
    requeued.command = f"srun -o {requeued.folder}/try-%t.log python"
    for name, at in (("try-0.log", 503), ("try-1.log", 504), ("slurm-7.out", 504)):
        (requeued.folder / name).write_text("step 1 loss 2.0\n")
        os.utime(requeued.folder / name, (START + at, START + at))
    for attempt, own in ((0, {"try-0.log"}), (1, {"try-1.log", "slurm-7.out"})):
        with gather(job_name("7"), 20.0, attempt) as found:
            names = {one.name for one in found.evidence.sources}
        there = {one.name for one in requeued.folder.iterdir() if str(one) in names}
        assert there == own


def test_a_node_that_was_lost_in_one_attempt_is_not_held_against_the_next(
    look, requeued, monkeypatch
):
    from rerail.tools.clusters.slurm_read import SlurmReader
    from rerail.tools.clusters.slurm_text import read_sinfo

    def nodes(self, names=()):
        return read_sinfo(f"n1|idle|{START}|none\nn2|down*|{START + 500}|Not responding\n")

    monkeypatch.setattr(SlurmReader, "nodes", nodes)
    assert "Not responding" in look(attempt=0)[0]["sinfo"]
    assert "sinfo" not in look(attempt=1)[0]
