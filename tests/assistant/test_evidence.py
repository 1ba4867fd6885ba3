"""Evidence is parted by who could have written it, and only the job's own files are read."""

import os
import time
from datetime import UTC, datetime

import pytest

from rerail.assistant.watch.evidence import collect_evidence
from rerail.domain.job import JobEvent, JobRef
from rerail.recovery.site_policy import JobLayout
from rerail.tools.clusters.attempt_span import AttemptSpan
from rerail.tools.clusters.slurm_outputs import Outputs
from rerail.tools.clusters.slurm_read import JobFiles
from rerail.tools.clusters.slurm_records import AttemptRecord, NodeRecord

BEGAN = datetime(2026, 3, 1, 12, 0, 0).astimezone().timestamp()
FELL = (
    "[12345.678901] NVRM: Xid (PCI:0000:9b:00): 79, pid=4242, name=python, "
    "GPU has fallen off the bus.\n"
)
XID = f"Mar  1 12:30:00 n2 kernel: {FELL}"


class FakeReader:
    """Answers as a scheduler would for one job on two nodes."""

    def __init__(self, stdout, lost=()):
        self.stdout, self.lost = stdout, lost

    def outputs(self, attempt):
        return Outputs()

    def files(self, job):
        return JobFiles(str(self.stdout), None, str(self.stdout.parent))

    def nodes(self, names=()):
        return [NodeRecord(n, "DOWN+NOT_RESPONDING" if n in self.lost else "IDLE") for n in names]

    def save_logs(self, attempt, folder):
        return []


@pytest.fixture
def collect(tmp_path):
    work = tmp_path / "[work] *"  # a folder that would be a pattern if it were not taken literally
    (work / "logs").mkdir(parents=True)
    out = work / "slurm-7.out"

    def run(text, kernel="", slurmd="", lost=(), uid=None, previous=None, following=None):
        out.write_text(text)
        (work / "logs" / "rank0.log").write_text("step 1\n")
        (tmp_path / "n2.kern").write_text(kernel)
        (tmp_path / "slurmd.n2.log").write_text(slurmd)
        event = JobEvent(job=JobRef(job="7"), source="t", state="FAILED", time="t")
        attempt = AttemptRecord(
            *("7", 0, "FAILED", ("n1", "n2")), start=BEGAN, end=BEGAN + 3600, uid=uid
        )
        layout = JobLayout(
            logs=("{folder}/logs/*.log",),
            kernel_logs=(str(tmp_path / "{node}.kern"),),
            scheduler_logs=(str(tmp_path / "slurmd.{node}.log"),),
        )
        return collect_evidence(
            event,
            AttemptSpan(attempt, previous, following),
            FakeReader(out, lost),
            layout,
            tmp_path / "evidence",
        )

    return run


def test_what_the_job_prints_attests_nothing(collect, tmp_path):
    found = collect(XID + "slurmd: [7.0] get_exit_code task 0 died by signal: 9\n")
    assert found.attested == [] and not found.died_by_signal
    kept = {
        p.relative_to(tmp_path / "evidence").as_posix()
        for p in (tmp_path / "evidence").rglob("*.*")
    }
    assert {"job/slurm-7.out", "job/rank0.log", "system/sacct.txt"} <= kept


def test_the_kernel_log_of_a_node_attests_for_that_node(collect):
    [fact] = collect("fine\n", kernel=XID).attested
    assert (fact.source, fact.node) == ("kernel", "n2") and "Xid" in fact.what


def stamped(at, text="[7.0] get_exit_code task 0 died by signal: 9"):
    local = datetime.fromtimestamp(at, UTC).astimezone().replace(tzinfo=None)
    return f"[{local.isoformat(timespec='milliseconds')}] {text}\n"


def test_what_is_of_another_attempt_of_a_requeued_job_is_left_out(collect, tmp_path):
    before = AttemptRecord("7", -1, "NODE_FAIL", ("n1",), start=BEGAN - 4000, end=BEGAN - 20)
    again = AttemptRecord("7", 1, "RUNNING", ("n1",), start=BEGAN + 3620)
    late, early = XID.replace("12:30:00", "13:01:10"), XID.replace("12:30:00", "11:59:50")
    for kernel in (late, early):
        assert len(collect("x\n", kernel=kernel).attested) == 1
    died = [stamped(BEGAN + 3640), stamped(BEGAN - 10)]
    assert collect("x\n", slurmd=died[0]).died_by_signal
    for kernel, slurmd in zip((late, early), died, strict=True):
        found = collect("x\n", kernel=kernel, slurmd=slurmd, previous=before, following=again)
        assert found.attested == [] and not found.died_by_signal
    own = collect("x\n", kernel=XID, slurmd=stamped(BEGAN + 9), previous=before, following=again)
    assert len(own.attested) == 1 and own.died_by_signal
    assert any("was written again by attempt 1" in one for one in own.problems)


def test_a_lost_node_is_attested_by_the_scheduler(collect):
    [fact] = collect("fine\n", lost=("n1",)).attested
    assert (fact.source, fact.node) == ("scheduler", "n1")


def test_the_step_daemon_attests_a_death_by_signal_of_this_job_only(collect):
    line = stamped(BEGAN + 3601, "[{}.0] get_exit_code task 0 died by signal: {}")
    assert collect("x\n", slurmd=line.format(7, 9)).died_by_signal
    assert not collect("x\n", slurmd=line.format(8, 9)).died_by_signal
    assert not collect("x\n", slurmd=line.format(7, 15)).died_by_signal  # ended by srun


@pytest.mark.skipif(os.geteuid() != 0, reason="only root reads files of others")
def test_a_file_of_another_user_is_not_read(collect, tmp_path):
    found = collect("secret\n", uid=12345)
    assert not (tmp_path / "evidence/job/slurm-7.out").exists()
    assert any("belongs to" in one and "not read" in one for one in found.problems)


def test_a_kernel_log_does_not_attest_what_the_user_s_code_did_or_what_a_job_could_write(
    collect, tmp_path
):
    bug = XID.replace("79", "13").replace("GPU has fallen off the bus", "Graphics Exception")
    assert collect("step 1\n", kernel=bug).attested == []
    assert [one.node for one in collect("step 1\n", kernel=XID).attested] == ["n2"]
    (tmp_path / "n2.kern").chmod(0o666)
    found = collect("step 1\n", kernel=XID)
    assert found.attested == [] and any("no witness" in one for one in found.problems)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (XID.replace("12:30", "10:30"), ""),  # another job's time
        (XID.replace("12:30", "13:05"), ""),  # after the attempt
        (XID.replace("Mar", "Feb"), ""),
        (f"2026-03-01T12:30:00+14:00 n2 kernel: {FELL}", ""),
        (FELL, "without date and time"),
        (XID.replace(" n2 ", " n3 "), "lines of n3 are not held against n2"),
    ],
)
def test_a_kernel_line_of_another_time_or_host_is_no_witness(collect, line, why):
    found = collect("step 1\n", kernel=line)
    assert found.attested == []
    assert any(why in one for one in found.problems) if why else not found.problems


def test_kernel_times_without_a_zone_are_local(collect, monkeypatch):
    for zone in ("America/Los_Angeles", "Asia/Tokyo"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        local = (
            datetime.fromtimestamp(BEGAN + 60, UTC).astimezone().strftime("[%a %b %d %H:%M:%S %Y]")
        )
        utc = datetime.fromtimestamp(BEGAN + 60, UTC).strftime("[%a %b %d %H:%M:%S %Y]")
        assert [one.node for one in collect("x\n", kernel=f"{local} {FELL[15:]}").attested] == [
            "n2"
        ]
        assert collect("x\n", kernel=f"{utc} {FELL[15:]}").attested == []
    monkeypatch.undo()
    time.tzset()
