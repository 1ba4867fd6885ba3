"""Recovery on a real Slurm with real training jobs; `rerail eval cluster run` runs all scenarios.

One test, because tests of one module may run in several processes at once and a cluster is enough.
"""

import json
import os
import subprocess
import sys
import time
from importlib.util import find_spec

import pytest

from rerail.domain.job import JobRef
from rerail.domain.plan import ActionKind, PlannedAction, Risk
from rerail.errors import ClusterError
from rerail.evals.cluster.lab import cannot_run
from rerail.recovery.clusters.slurm_rest_write import SlurmRestWriter
from rerail.recovery.clusters.slurm_write import SlurmWriter
from rerail.recovery.clusters.writer import Check
from rerail.tools.clusters.slurm_read import SlurmReader
from rerail.tools.clusters.slurm_rest import SlurmRest
from rerail.tools.clusters.slurm_rest_read import SlurmRestReader

SCENARIOS = ("user_bug", "forged_xid", "poisoned_batch", "loss_spike", "node_lost")
RERAIL = "from rerail.assistant.cli.main import main; main()"
TRUSTED = (
    *("doctor_is_green", "planted_links", "strange_spool", "stopped", "edited_policy"),
    *("missing_rights", "not_requeueable", "store_reset"),
)


@pytest.mark.slurm
@pytest.mark.slow
@pytest.mark.skipif(bool(cannot_run()), reason=cannot_run() or "it can")
@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_a_site_set_up_by_the_page_withstands_its_users_and_its_operators():
    """In a process of its own: the page's accounts live in mounts that only that process sees."""
    done = subprocess.run(
        [sys.executable, "-c", RERAIL, "eval", "cluster", "run", "--json", *TRUSTED],
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    found = json.loads(done.stdout)["scenarios"]
    assert {one["name"] for one in found} == set(TRUSTED)


@pytest.mark.slurm
@pytest.mark.slow
@pytest.mark.skipif(bool(cannot_run()), reason=cannot_run() or "it can")
@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_jobs_recover_by_themselves_or_are_left_alone_on_a_real_slurm():
    from rerail.evals.cluster.bench import bench
    from rerail.evals.cluster.scenarios import SCENARIOS as KNOWN
    from rerail.evals.cluster.scenarios import approve_and_undo

    # cgroups are named after nodes, and other clusters may run beside this one
    with bench(prefix=f"t{os.getpid()}n") as made:
        reader_has_no_rights_of_the_writer(made)
        results = [KNOWN[name](made) for name in SCENARIOS]
        slurmrestd_says_the_same(made)
        by_hand = approve_and_undo(made)
        audit = made.site.rerail("audit", "verify")
        heard = made.site.log()
    assert {one.name: one.wrong for one in [*results, by_hand] if one.wrong} == {}, heard
    assert {one.manual_steps for one in results} == {0}
    assert audit.returncode == 0, audit.stdout


def slurmrestd_says_the_same(made):
    """The real slurmrestd of 22.05 tells of all jobs so far what the commands tell."""
    reader = SlurmRestReader(SlurmRest(made.lab.rest_socket("reader")))
    assert reader.rest.version == "v0.0.38"
    since = time.time() - 3600
    failed = {(one.job, one.attempt) for one in made.reader.ended_badly(since)}
    assert {(one.job, one.attempt) for one in reader.ended_badly(since)} == failed
    for job, _ in failed:
        said, told = reader.attempts(job), made.attempts(job)
        assert [(one.state, one.nodes, one.uid) for one in said] == [
            (one.state, one.nodes, one.uid) for one in told
        ]
        # 22.05 writes SUCCESS for what failed: open, never another code than that of the commands.
        codes = zip(
            (s for a in said for s in a.steps), (s for a in told for s in a.steps), strict=True
        )
        assert all(one.exit_code in (None, two.exit_code) for one, two in codes)
        assert reader.files(job) == made.reader.files(job)
    assert {(one.node, one.lost, one.drained) for one in reader.nodes()} == {
        (one.node, one.lost, one.drained) for one in made.reader.nodes()
    }
    waits = JobRef(job=made.site.sbatch("ann", "-H", "-o", "/dev/null", "--wrap", "sleep 60"))
    cancel = PlannedAction(
        step=1,
        kind=ActionKind.CANCEL,
        target=waits.job,
        risk=Risk.MEDIUM,
        reversible=False,
        because="b",
        needs_approval=True,
    )
    for face in ("reader", "writer"):
        rest = SlurmRest(made.lab.rest_socket(face))
        writer = SlurmRestWriter(made.reader, rest, environment=made.lab.environment)
        if face == "reader":
            with pytest.raises(ClusterError, match="denied"):
                writer.carry_out(cancel, waits, "INC-1")
            assert writer.effect(cancel, waits) is Check.ABSENT
        else:
            writer.carry_out(cancel, waits, "INC-1")
            assert writer.effect(cancel, waits) is Check.DONE


def reader_has_no_rights_of_the_writer(made):
    """As another user Slurm answers every question and refuses every change."""
    nobody = ("runuser", "-u", "nobody", "--")
    reader = SlurmReader(prefix=nobody, environment=made.lab.environment)
    assert len(reader.nodes()) == 4
    drain = PlannedAction(
        step=1,
        kind=ActionKind.DRAIN,
        target=made.lab.layout.nodes[0],
        risk=Risk.LOW,
        reversible=True,
        because="b",
        needs_approval=True,
    )
    writer = SlurmWriter(reader, prefix=nobody, environment=made.lab.environment)
    with pytest.raises(ClusterError, match=r"[Aa]ccess|[Pp]ermission|[Ii]nvalid user"):
        writer.carry_out(drain, JobRef(job="1"), "INC-1")
    assert made.drained() == []
