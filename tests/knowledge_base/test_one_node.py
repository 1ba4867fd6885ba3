"""On one node the number of a device or of a spawned child is the rank; on several it is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

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


def test_an_exception_that_spawn_tells_again_is_its_childs(diagnose: Run) -> None:
    oom = "CUDA out of memory. Tried to allocate 1.02 GiB (GPU {}; 10.76 GiB total capacity)\n"
    log = (
        "WARNING | trainer | OOM: Ran out of memory with exception: {early}\n"
        "ERROR | trainer | OOM during optimization, irrecoverable\n"
        "-- Process 5 terminated with the following error:\n"
        "Traceback (most recent call last):\n"
        '  File "/w/trainer.py", line 512, in train_step\n'
        "RuntimeError: {late}"
    )
    assert diagnose(log.format(early=oom.format(5), late=oom.format(5))).suspects.ranks == [5]
    # On another GPU ran out another process.
    assert diagnose(log.format(early=oom.format(2), late=oom.format(5))).suspects.ranks == []
    assert diagnose(log.format(early=oom.format(5), late="bad\n")).suspects.ranks == []
    other = "KeyError: 'text'\n-- Process 5 terminated with the following error:\nValueError: bad batch size\n"
    found = diagnose(other)
    assert found.suspects.ranks != [5] or found.first_fault.line == 3


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


TIMEOUT = (
    "[rank{rank}]:[E1119 13:21:12.512781555 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600123 "
    "milliseconds before timing out.\n"
)
SEATED = (
    "n01:41{rank}:42{rank} [{rank}] NCCL INFO ncclCommInitRank comm 0x5584021f1100 rank {rank} nranks {size} cudaDev {rank} "
    "nvmlDev {rank} busId {rank}1000 commId 0xb886029f29f1a815 - Init COMPLETE\n"
)


def silent(missing: int, size: int) -> str:
    return "".join(TIMEOUT.format(rank=rank) for rank in range(size) if rank != missing)


def test_a_silent_rank_is_on_the_only_node_where_its_neighbours_are(diagnose: Run) -> None:
    placed = "".join(SEATED.format(rank=rank, size=4) for rank in (0, 3))
    found = diagnose(placed + silent(1, 4))
    assert (found.suspects.ranks, found.suspects.nodes) == ([1], ["n01"])


def test_a_silent_rank_is_on_no_node_where_others_may_be(diagnose: Run) -> None:
    placed = SEATED.format(rank=0, size=8) + "[rank0]: --nnodes=2 --nproc_per_node=4\n"
    found = diagnose(placed + silent(5, 8))
    assert (found.suspects.ranks, found.suspects.nodes) == ([5], [])
    found = diagnose(SEATED.format(rank=0, size=8) + silent(5, 8))
    assert (found.suspects.ranks, found.suspects.nodes) == ([5], [])


def test_the_only_host_that_introduces_itself_is_not_that_of_every_rank(diagnose: Run) -> None:
    log = (
        "[rank0]: INFO started rank=0 hostname=n01 pid=1234 world_size=16\n"
        "[rank13]: step 1 loss 2.0\n"
        "[rank13]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
    )
    found = diagnose(log)
    assert (found.suspects.ranks, found.suspects.nodes) == ([13], [])


def test_a_host_is_the_same_with_and_without_its_domain(diagnose: Run) -> None:
    log = (
        "n02.cluster.local: Traceback (most recent call last):\n"
        'n02.cluster.local:   File "/w/a.py", line 1, in <module>\n'
        "n02.cluster.local: RuntimeError: DataLoader worker (pid 4471) is killed by signal: Segmentation fault.\n"
        "srun: error: n02: task 5: Segmentation fault (core dumped)\n"
        "srun: error: n03: task 9: Exited with exit code 1\n"
    )
    assert diagnose(log).suspects.ranks == [5]


@pytest.mark.parametrize(("per_node", "ranks"), [(4, []), (8, [3])])
def test_a_local_rank_is_no_rank_where_the_launcher_starts_fewer_on_a_node(
    diagnose: Run, per_node: int, ranks: list[int]
) -> None:
    """Nodes with four GPUs: eight ranks are on two of them, and local rank 3 is rank 3 or 7."""
    steps = "".join(f"[rank{r}]: step {s} loss 2.{s}\n" for s in range(1, 4) for r in range(8))
    log = (
        f"  nproc_per_node   : {per_node}\n{steps}"
        "E0301 02:00:01.5 91 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: -11) "
        "local_rank: 3 (pid: 1088) of binary: /usr/bin/python\n"
    )
    assert diagnose(log).suspects.ranks == ranks


WAITED = (
    "[E ProcessGroupNCCL.cpp:474] [Rank {}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, "
    "OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=120000) ran for 120621 milliseconds before timing out.\n"
)


@pytest.mark.parametrize(
    ("prompt", "node"),
    [
        ("(ml) ann@dusk:~/run$ torchrun --nproc_per_node 4 train.py\n", "dusk"),
        (
            "root@box-17:/ws# python3 -m torch.distributed.launch --nproc_per_node=4 train.py\n",
            "box-17",
        ),
        ("ann@dusk:~/run$ torchrun --nnodes 2 --nproc_per_node 4 train.py\n", None),
        ("ann@dusk:~/run$ mpirun -np 4 --hostfile hosts python train.py\n", None),
    ],
)
def test_where_all_ranks_were_started_on_one_host_the_failure_is_there(
    diagnose: Run, prompt: str, node: str | None
) -> None:
    """Nobody is accused by that: which rank kept the others waiting is not known."""
    found = diagnose(prompt + "".join(map(WAITED.format, (1, 3, 0, 2))))
    assert found.failure_type == "nccl_timeout_unexplained"
    assert found.first_fault.node == node
    assert not found.suspects.ranks and not found.suspects.nodes


@pytest.mark.parametrize(
    ("told", "node"),
    [
        ("SLURM_JOB_NODELIST=gn-17", "gn-17"),
        ("    exec_host = gn-17/0*64", "gn-17"),
        ("SLURM_JOB_NODELIST=gn-[17-18]", None),
        ("    exec_host = gn-17/0*64+gn-18/0*64", None),
    ],
)
def test_the_only_node_that_the_scheduler_gave_to_a_job_is_where_it_failed(
    told: str, node: str | None, diagnose: Run
) -> None:
    found = diagnose(
        f"{told}\nstep 1 loss 2.0\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    )
    assert found.first_fault is not None
    assert found.first_fault.node == node
