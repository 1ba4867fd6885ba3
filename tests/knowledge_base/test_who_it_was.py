"""Which rank a fault was on where only another line, the host or the process id tells it."""

from __future__ import annotations

from rerail.assistant.pipeline import diagnose_texts

POD = "ranker-worker-{n} trainer "
ENVIRONMENT = "".join(
    POD.format(n=n)
    + f"{{'RANK': '{n}', 'WORLD_SIZE': '3', 'MASTER_ADDR': 'ranker-worker-0', 'backend': 'gloo'}}\n"
    for n in range(3)
)
SHM = "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\n"
KILLED = (
    "RuntimeError: DataLoader worker (pid 613) is killed by signal: Bus error. It is possible that dataloader's workers "
    "are out of shared memory.\n"
)


def place(text: str) -> tuple[int | None, str | None]:
    """Rank and node of the first fault."""
    fault = diagnose_texts({"job.log": text}).diagnosis.first_fault
    return (None, None) if fault is None else (fault.rank, fault.node)


def test_the_rank_of_a_host_that_has_one_as_all_hosts_have() -> None:
    crash = POD.format(n=2) + "Fatal Python error: Segmentation fault\n"
    assert place(ENVIRONMENT + crash) == (2, "ranker-worker-2")
    assert place(ENVIRONMENT.replace("'3'", "'6'") + crash)[0] is None


def test_a_lost_node_is_the_rank_whose_address_a_table_puts_there() -> None:
    seats = "".join(
        f"(TorchTrainer pid=1877, ip=10.1.0.1) - (node_id=1b3c{n}, ip=10.1.0.{n + 2}, pid=61{n}) world_rank={n}, "
        f"local_rank=0, node_rank={n}\n"
        for n in range(2)
    )
    table = "NAME    READY   STATUS    RESTARTS   AGE   IP         NODE\n" + "".join(
        f"pod-{n}   1/1     Running   0          26h   10.1.0.{n + 2}   gn-1{n}\n" for n in range(2)
    )
    event = (
        "17:41:09   Normal    NodeNotReady   node/gn-11   Node gn-11 status is now: NodeNotReady\n"
    )
    found = diagnose_texts({"job.log": table + event + seats}).diagnosis
    assert (found.suspects.ranks, found.suspects.nodes) == ([1], ["gn-11"])


def test_the_process_in_front_of_a_logged_exception_is_the_one_that_raised_it() -> None:
    nccl = "".join(
        f"gn-3:318{n}:327{n} [{n}] NCCL INFO comm 0x55 rank {8 + n} nranks 16 cudaDev {n} nvmlDev {n} busId {n + 1}9000 "
        "commId 0x8a - Init COMPLETE\n"
        for n in range(4)
    )
    record = (
        "2026-08-02 07:18:40,902 ERROR pid=3182 train: exception in train loop\nTraceback (most recent call last):\n"
        '  File "/w/train.py", line 207, in loop\n'
        "OSError: [Errno 116] Stale file handle: '/mnt/nfs/clips/xk20.mp4'\n"
    )
    other = "gn-2:318:327 [0] NCCL INFO comm 0x55 rank 0 nranks 16 cudaDev 0 busId 19000 commId 0x8a - Init COMPLETE\n"
    assert place(other + nccl + record) == (10, "gn-3")


def gloo(rank: int, pid: int, peers: int) -> str:
    return (
        f"(WorkerDict pid={pid}, ip=10.95.143.76) [Gloo] Rank {rank} is connected to {peers} peer ranks. Expected number "
        f"of connected peer ranks is : {peers}\n"
    )


def test_ray_names_the_process_that_it_killed_and_gloo_its_rank() -> None:
    killed = (
        "(raylet, ip=10.95.143.76) [2026-04-11 03:31:44,117 E 87102 87102] (raylet) node_manager.cc:3069: 1 Workers (tasks "
        "/ actors) killed due to memory pressure (OOM), 0 Workers crashed due to other reasons at node (ID: 351e, IP: "
        "10.95.143.76) over the last time period.\n"
        "Memory on the node (IP: 10.95.143.76, ID: 351e) where the task (actor ID: 2ad1, name=x, pid=88315, memory "
        "used=214.06GB) was running was 1887.2GB / 1888.0GB (0.999), which exceeds the memory usage threshold of 0.95.\n"
    )
    whole = "".join(gloo(rank, 88300 + 5 * rank, 7) for rank in range(8))
    assert place(whole + killed)[0] == 3
    parts = "".join(gloo(rank % 4, 88300 + 5 * rank, 3) for rank in range(8))
    assert place(parts + killed)[0] is None


def test_a_pod_that_was_never_scheduled_is_the_rank_of_its_environment() -> None:
    described = (
        "$ kubectl describe pod t5-worker-2\nName:             t5-worker-2\nContainers:\n  pytorch:\n    Environment:\n"
        "      WORLD_SIZE:        4\n      RANK:              3\nEvents:\n"
        "  Warning  FailedScheduling  36m  default-scheduler  0/12 nodes are available: 3 Insufficient nvidia.com/gpu.\n"
    )
    assert place(described)[0] == 3


def test_the_first_word_of_a_data_worker_s_death_is_the_fault_and_its_rank_the_one_that_raises() -> (
    None
):
    text = "".join(f"w-{n} | step {s} loss 2.0\n" for s in range(1, 5) for n in (0, 1))
    text += f"w-1 | {SHM}w-1 | [rank4]: Traceback (most recent call last):\nw-1 | [rank4]: {KILLED}"
    found = diagnose_texts({"job.log": text}).diagnosis.first_fault
    assert found is not None
    assert (found.line, found.rank) == (9, 4)


def test_hydra_s_headline_is_not_the_failure() -> None:
    text = (
        "Error executing job with overrides: ['trainer.nnodes=2']\nTraceback (most recent call last):\n"
        '  File "/w/main.py", line 39, in main\n    run(config)\nAssertionError: batch (60) must be divisible by 16\n'
    )
    found = diagnose_texts({"job.log": text}).diagnosis.first_fault
    assert found is not None
    assert found.text.startswith("AssertionError")


def test_a_gpu_that_is_named_by_its_uuid_is_the_rank_that_started_with_it() -> None:
    uuid = "GPU-0000000{n}-77de-4a11-9c0e-5d1100a1e001"
    starts = "".join(f"rank {n + 8} -> cuda:{n} {uuid.format(n=n)}\n" for n in range(4))
    metric = f'DCGM_FI_DEV_XID_ERRORS{{gpu="2",UUID="{uuid.format(n=2)}",device="nvidia2",Hostname="gn-22"}} 48\n'
    assert place(starts + metric) == (10, "gn-22")
    assert place(starts + f"rank 4 -> cuda:0 {uuid.format(n=2)}\n" + metric)[0] is None
