"""Recovery on a real Slurm with real training jobs; `rerail eval cluster run` runs all scenarios."""

from importlib.util import find_spec

import pytest

from rerail.evals.cluster.lab import cannot_run

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.slow,
    pytest.mark.skipif(bool(cannot_run()), reason=cannot_run() or "it can"),
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed"),
]


@pytest.fixture(scope="module")
def bench():
    from rerail.evals.cluster.bench import bench as start

    with start() as made:
        yield made


@pytest.mark.parametrize("name", ["user_bug", "forged_xid", "poisoned_batch", "node_lost"])
def test_scenario(bench, name):
    from rerail.evals.cluster.scenarios import SCENARIOS

    result = SCENARIOS[name](bench)
    assert result.wrong == []
    assert result.manual_steps == 0
    audit = bench.site.rerail("audit", "verify")
    assert audit.returncode == 0, audit.stdout


def test_a_person_approves_what_is_only_proposed_and_it_is_undone_again(bench):
    """`rerail approve` drains a node for real, once; nothing else may forge it."""
    from rerail.evals.cluster.scenarios import approve_and_undo

    assert approve_and_undo(bench).wrong == []


def test_the_reader_has_no_rights_that_the_writer_needs(bench):
    """As another user Slurm answers every question and refuses every change."""
    from rerail.domain.job import JobRef
    from rerail.domain.plan import ActionKind, PlannedAction, Risk
    from rerail.errors import ClusterError
    from rerail.recovery.clusters.slurm_write import SlurmWriter
    from rerail.tools.clusters.slurm_read import SlurmReader

    nobody = ("runuser", "-u", "nobody", "--")
    reader = SlurmReader(prefix=nobody, environment=bench.lab.environment)
    assert len(reader.nodes()) == 4
    writer = SlurmWriter(reader, prefix=nobody, environment=bench.lab.environment)
    drain = PlannedAction(
        step=1,
        kind=ActionKind.DRAIN,
        target=bench.lab.layout.nodes[0],
        risk=Risk.LOW,
        reversible=True,
        because="b",
        needs_approval=True,
    )
    with pytest.raises(ClusterError, match=r"[Aa]ccess|[Pp]ermission|[Ii]nvalid user"):
        writer.carry_out(drain, JobRef(job="1"), "INC-1")
    assert bench.drained() == []
