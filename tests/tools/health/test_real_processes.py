"""Real processes over gloo: the killed node and the throttled one are named, and nobody else."""

from importlib.util import find_spec

import pytest

from rerail.evals.health.real import run_real

pytestmark = [
    pytest.mark.torch,
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed"),
]


def test_a_dead_peer_is_named():
    run = run_real(4, dead=1, message_mb=4.0)
    assert run.report is not None
    assert set(run.report["faulty"]) == {"node1"}


@pytest.mark.nightly  # other work on the machine hides who is slow: it wants idle cores
def test_a_dead_and_a_throttled_peer_are_named():
    run = run_real(6, dead=1, throttled=4)
    assert run.report is not None
    faulty = set(run.report["faulty"])
    assert "node1" in faulty
    if "node4" in faulty:  # on a busy machine it misses the time limit of its pair, too
        assert faulty == {"node1", "node4"}
        return
    assert faulty == {"node1"}
    # Other work on the machine may slow others down too; the throttled one is the slowest.
    slow = run.report["slow"]
    assert slow and min(slow, key=slow.get) == "node4" and slow["node4"] < 0.7
