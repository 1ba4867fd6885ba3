"""On one node the number of a device or of a spawned child is the rank; on several it is not."""

from __future__ import annotations

from collections.abc import Callable

from rerail.domain.diagnosis import Diagnosis

Run = Callable[[str | dict[str, str]], Diagnosis]

SPAWNED = """torch.multiprocessing.spawn.ProcessRaisedException:

-- Process 6 terminated with the following error:
Traceback (most recent call last):
  File "/opt/conda/lib/python3.10/site-packages/torch/multiprocessing/spawn.py", line 69, in _wrap
    fn(i, *args)
  File "/home/u/main.py", line 201, in worker
    rate = sched.get_lrs()[0]
AttributeError: 'CosineAnnealingLR' object has no attribute 'get_lrs'
"""
DEVICE = """[GPU 4] step 10 loss 2.1
[GPU 4] step 11 loss 2.1
[GPU 4] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB
"""


def test_the_child_that_spawn_names_is_the_rank(diagnose: Run) -> None:
    assert diagnose(SPAWNED).suspects.ranks == [6]


def test_the_device_in_front_is_the_rank(diagnose: Run) -> None:
    assert diagnose(DEVICE).suspects.ranks == [4]


def test_where_there_are_more_nodes_nobody_is_named(diagnose: Run) -> None:
    assert diagnose("world size 32\n" + DEVICE).suspects.ranks == []
    assert diagnose("[rank12]: step 1 loss 3\n" + SPAWNED).suspects.ranks == []


def test_the_agents_local_rank_is_the_rank_where_labels_show_one_node(diagnose: Run) -> None:
    crash = (
        "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f1 (most recent call first):\n"
        '  File "/w/kernels.py", line 12 in fused_rms\n'
        "E0301 10:00 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: -11) local_rank: 5 "
        "(pid: 991) of binary: /usr/bin/python3\n"
    )
    assert diagnose("rank5: step 40 loss 2.2\n" + crash).suspects.ranks == [5]
    assert diagnose("rank13: step 40 loss 2.2\n" + crash).suspects.ranks == []
