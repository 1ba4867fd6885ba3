"""A real training job of four processes: the split recovers most of the slowdown and changes no loss."""

from importlib.util import find_spec

import pytest

from rerail.evals.mitigation.real_job import run_real_job, run_split

pytestmark = [
    pytest.mark.torch,
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed"),
]


def test_the_slow_rank_gets_fewer_micro_batches_and_the_loss_is_that_of_the_healthy_run():
    counts, difference = run_split(10)
    assert difference < 1e-9
    assert sum(counts) == 32 and counts[2] == min(counts) < 8


@pytest.mark.nightly  # how much time it wins shows where nothing else runs
def test_the_split_helps():
    job = run_real_job()
    assert job.loss_difference < 1e-9
    assert job.recovered > 0.3  # it is 0.87 on an idle machine
