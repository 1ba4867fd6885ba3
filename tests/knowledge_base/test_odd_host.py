"""A device that one rank alone does not find, where ranks at the same place of other hosts run: its host lacks it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rerail.domain.diagnosis import Diagnosis, Status

Run = Callable[[str | dict[str, str]], Diagnosis]

START = "+ srun -N2 --ntasks-per-node=2 -w gn-[1-2] -l python train.py\n"
STEPS = " 0: step 1 loss 2.3\n 1: loader ready\n"
RAISED = """ {0}: Traceback (most recent call last):
 {0}:   File "train.py", line 12, in main
 {0}:     torch.cuda.set_device(local_rank)
 {0}: RuntimeError: CUDA error: invalid device ordinal
srun: error: {1}: task {0}: Exited with exit code 1
"""


def test_one_rank_alone_whose_neighbours_on_other_hosts_run(diagnose: Run) -> None:
    found = diagnose(START + STEPS + RAISED.format(3, "gn-2"))
    assert found.failure_type == "gpu_missing_at_start"
    assert found.status is Status.SUPPORTED
    assert list(found.suspects.nodes) == ["gn-2"]


@pytest.mark.parametrize(
    "log",
    [
        STEPS + RAISED.format(1, "gn-1") + RAISED.format(3, "gn-2"),  # of no host
        " 0: step 1 loss 2.3\n" + RAISED.format(3, "gn-2"),  # nothing is heard of rank 1
    ],
)
def test_where_it_need_not_be_the_only_one(log: str, diagnose: Run) -> None:
    assert diagnose(START + log).failure_type == "dist_env_misconfig"
