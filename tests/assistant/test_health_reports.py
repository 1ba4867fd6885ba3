"""A health report counts as a witness only where no job can have written it."""

import json
import os

import pytest

from rerail.assistant.watch.evidence import collect_evidence
from rerail.assistant.watch.health_reports import read_health_report
from rerail.domain.job import JobEvent, JobRef
from rerail.errors import EvidenceError
from rerail.recovery.site_policy import JobLayout
from rerail.tools.clusters.attempt_span import AttemptSpan
from rerail.tools.clusters.slurm_outputs import Outputs
from rerail.tools.clusters.slurm_read import JobFiles
from rerail.tools.clusters.slurm_records import AttemptRecord, NodeRecord

NO_JOB = 54321


def report(path, at=2_000.0, **found):
    path.write_text(json.dumps({"healthy": not found, "nodes": ["n1", "n2:0", "n2:1"], **found}))
    path.chmod(0o644)
    os.utime(path, (at, at))
    return path


def test_what_counts_against_a_node_and_what_does_not(tmp_path):
    path = report(
        tmp_path / "health-7.json",
        faulty=["n2:1"],
        unstable_bits=["n1"],
        slow={"n1": 0.5},
        absent=["n3"],
    )
    facts = read_health_report(path, NO_JOB)
    assert facts.tested == {"n1", "n2"}
    assert facts.failed == {
        "n2": "it failed the pairwise tests",
        "n1": "its results change from run to run",
    }
    assert read_health_report(report(path, slow={"n1": 0.5}), NO_JOB).failed == {}
    path.write_text("srun: error")
    assert read_health_report(path, NO_JOB) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize(
    "forged", ["file of the job's user", "writable file", "writable folder", "link"]
)
def test_a_report_that_a_job_could_have_written_is_no_witness(tmp_path, forged):
    path = report(tmp_path / "health-7.json", faulty=["n1"])
    if forged == "file of the job's user":
        os.chown(path, NO_JOB, -1)
    elif forged == "writable file":
        path.chmod(0o666)
    elif forged == "writable folder":
        tmp_path.chmod(0o1777)
    else:
        path = tmp_path / "link.json"
        path.symlink_to(tmp_path / "health-7.json")
    with pytest.raises(EvidenceError):
        read_health_report(path, NO_JOB)


class FakeReader:
    def outputs(self, attempt):
        return Outputs()

    def files(self, job):
        return JobFiles(None, None, None)

    def nodes(self, names=()):
        return [NodeRecord(name, "IDLE") for name in names]

    def save_logs(self, attempt, folder):
        return []


def test_the_newest_report_since_the_start_of_the_attempt_decides(tmp_path):
    event = JobEvent(job=JobRef(job="7"), source="t", state="FAILED", time="t")
    attempt = AttemptRecord("7", 0, "FAILED", ("n1", "n2"), start=1_000.0, uid=NO_JOB)
    layout = JobLayout(health_output=str(tmp_path / "health-%j.json"))

    def witnesses():
        found = collect_evidence(
            event, AttemptSpan(attempt), FakeReader(), layout, tmp_path / "evidence"
        )
        return {one.node for one in found.attested}, found.tested

    report(tmp_path / "health-1.json", at=900.0, faulty=["n1"])  # of an earlier failure
    assert witnesses() == (set(), False)
    report(tmp_path / "health-2.json", at=1_500.0, faulty=["n2"])
    assert witnesses() == ({"n2"}, True)
    report(tmp_path / "health-3.json", at=1_600.0)  # repaired and tested again
    assert witnesses() == (set(), True)
