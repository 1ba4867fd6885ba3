"""Rank and node of a fault whose own line has no label, from the lines that tell of it again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rerail.domain.diagnosis import Diagnosis

Run = Callable[[str | dict[str, str]], Diagnosis]

STEPS = "".join(f"step {i} loss 2.{9 - i}\n" for i in range(6))
ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered\n"


def watchdog(rank: int) -> str:
    return (
        f"[E ProcessGroupNCCL.cpp:916] [Rank {rank}] NCCL watchdog thread terminated with exception: "
        "CUDA error: uncorrectable ECC error encountered\n"
    )


def test_the_rank_whose_watchdog_met_the_same_error(diagnose: Run) -> None:
    assert diagnose(STEPS + ECC + watchdog(5)).suspects.ranks == [5]
    assert diagnose(STEPS + ECC + watchdog(5) + watchdog(6)).suspects.ranks == []


def test_nccl_names_process_and_rank_apart(diagnose: Run) -> None:
    found = diagnose(
        "h8:401:411 [2] NCCL INFO comm 0x7f rank 10 nranks 16 cudaDev 2 busId 3b000 - Init COMPLETE\n"
        + STEPS
        + "h8:401:419 [2] include/alloc.h:48 NCCL WARN Cuda failure 'uncorrectable NVLink error detected during the execution'\n"
    )
    assert (found.failure_type, found.suspects.ranks, found.suspects.nodes) == (
        "nvlink_error", [10], ["h8"],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "node"),
    [
        (
            "[2026-05-04T10:14:41.512] error: Setting node dagobah-03 state to INVAL with reason:gres/gpu count "
            "reported lower than configured (7 < 8)\n",
            "dagobah-03",
        ),
        (
            "[2026-05-17T01:05:01.222] error: [job 23] prolog failed status=1:0\n"
            "srun: error: Task launch for 23.0 failed on node hpc: Job prolog failed\n",
            "hpc",
        ),
    ],
)
def test_schedulers_name_the_node_in_words(diagnose: Run, text: str, node: str) -> None:
    assert diagnose(text).suspects.nodes == [node]


def test_tasks_killed_with_the_step_do_not_share_the_blame(diagnose: Run) -> None:
    found = diagnose(
        "slurmstepd: error: pyxis:     nvidia-container-cli: initialization error: load library failed: "
        "libnvidia-ml.so.1: cannot open shared object file: no such file or directory\n"
        "srun: error: n4: task 24: Exited with exit code 1\n"
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
        "slurmstepd: error: *** STEP 269.0 ON n1 CANCELLED AT 2026-01-11T09:12:00 ***\n"
        "srun: error: n1: tasks 0-7: Killed\n"
    )
    assert found.suspects.nodes == ["n4"]


def test_steps_of_the_grace_time_do_not_clear_a_time_limit(diagnose: Run) -> None:
    limit = "slurmstepd: error: *** STEP 5.0 ON m17 CANCELLED AT 2026-01-10T15:27:25 DUE TO TIME LIMIT ***\n"
    more = "step 6 loss 2.2\nstep 7 loss 2.2\n"
    assert diagnose(STEPS + limit + more).failure_type == "job_time_limit"
    again = "".join(f"step {i} loss 2.{9 - i}\n" for i in range(4, 9))
    assert diagnose(STEPS + limit + again).failure_type != "job_time_limit"


def test_what_only_slows_a_run_yields_to_what_ends_it(diagnose: Run) -> None:
    found = diagnose(
        "ps-8:796:796 [1] NCCL INFO NET/IB : No device found.\n"
        "ps-8:796:796 [1] NCCL INFO Using network Socket\n"
        "ps-8:795:822 [0] include/socket.h:409 NCCL WARN Net : Connect to 192.168.1.9<54263> failed : No route to host\n"
        "RuntimeError: NCCL error in: ../ProcessGroupNCCL.cpp:1051, unhandled system error, NCCL version 21.0.3\n"
    )
    assert found.failure_type == "tcp_network_failure"


def stuck(rank: int, seq: int, op: str, enqueued: int, done: int) -> str:
    front = f"[rank{rank}]:[E1122 06:40:0{rank}.504 ProcessGroupNCCL.cpp:"
    return (
        f"{front}616] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, "
        f"OpType={op}, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600010 milliseconds before timing out.\n"
        f"{front}1785] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Exception (either an error or timeout) detected "
        f"by watchdog at work: {seq}, last enqueued NCCL work: {enqueued}, last completed NCCL work: {done}.\n"
    )


def test_nobody_gets_past_a_collective_without_every_rank(diagnose: Run) -> None:
    late = "11/22/2024 06:29:59 - INFO - Saving FSDP model\n" + stuck(1, 126, "ALLREDUCE", 128, 125)
    assert diagnose(stuck(0, 122, "ALLREDUCE", 127, 121) + late).failure_type == "rank_divergence"
    # The root of a broadcast does not wait for those that receive.
    alone = diagnose(stuck(0, 122, "BROADCAST", 127, 121) + late)
    assert alone.failure_type != "rank_divergence"


def test_who_waits_in_the_same_collective_as_others_is_not_behind(diagnose: Run) -> None:
    without_status = [stuck(rank, 518804, "BROADCAST", 0, 0).splitlines(True)[0] for rank in (1, 3)]
    told = stuck(2, 518804, "BROADCAST", 518804, 518803) + stuck(
        0, 518806, "_ALLGATHER_BASE", 518806, 518805
    )
    assert diagnose(told + "".join(without_status)).suspects.ranks != [2]


def test_what_may_slow_a_run_is_not_established(diagnose: Run) -> None:
    found = diagnose(
        "g1:796:796 [1] NCCL INFO NCCL_IB_HCA set to mlx5\ng1:796:796 [1] NCCL INFO Using network Socket\n"
    )
    assert (found.failure_type, found.status) == ("slow_network", "supported")


def test_the_node_that_rays_monitor_names_ran_out_not_the_callers(diagnose: Run) -> None:
    found = diagnose(
        "ray.exceptions.RayTaskError(OutOfMemoryError): ray::_Inner.train() (pid=433, ip=10.4.7.12, repr=TorchTrainer)\n"
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\n"
        "Memory on the node (IP: 10.4.7.18, ID: 8c5a1410) where the task (actor ID: 4161, name=W.__init__, pid=548, "
        "memory used=112.18GB) was running\n"
    )
    assert found.suspects.nodes == ["10.4.7.18"]


def test_no_node_is_to_blame_for_a_pod_that_found_none(diagnose: Run) -> None:
    placed = "  Normal   Scheduled         8m   default-scheduler  Successfully assigned ml/w-1 to gpu-9\n"
    refused = "  Warning  FailedScheduling  2m   default-scheduler  0/9 nodes are available: 9 Insufficient nvidia.com/gpu.\n"
    found = diagnose(placed + refused)
    assert (found.failure_type, found.suspects.nodes) == ("scheduler_launch_failure", [])


DIAG = (
    "Successfully ran diagnostic for group.\n"
    "+---------------------------+------------------------------------------------+\n"
    "| PCIe                      | Pass - All                                     |\n"
)


def test_checks_of_machines_alone_are_no_failure_where_all_passed(diagnose: Run) -> None:
    found = diagnose(DIAG)
    assert (found.failure_type, found.status) == ("no_failure", "supported")
    burn = "n1: \tGPU 0: OK\n"
    assert diagnose(burn).failure_type == "no_failure"
    failed = "| Targeted Stress           | Fail - GPU: 3                                  |\n"
    assert diagnose(DIAG + failed).failure_type == "gpu_internal_fault"


@pytest.mark.parametrize(
    "more",
    [
        "FATAL: the test suite died\n",
        "+ srun torchrun --nnodes 2 train.py\ntrainer: connecting\n",
        "srun: Job step creation temporarily disabled, retrying (Requested nodes are busy)\n",
        "|ERR!   50C    P0    ERR! / 700W |   0MiB / 81559MiB |    ERR!      Default |\n",
        "n2: dcmi model initialized failed, because the device is used. ret is -8020\n",
    ],
)
def test_a_check_vouches_for_nothing_else(diagnose: Run, more: str) -> None:
    assert diagnose(DIAG + more).failure_type is None
    assert diagnose("n1: \tGPU 0: OK\n" + more).failure_type is None
    assert diagnose({"diag": DIAG, "train.log": "starting\n"}).failure_type is None


LOST = (
    "E external/xla/xla/service/gpu/nccl_utils.cc:219] INTERNAL: external/xla/xla/service/gpu/nccl_utils.cc:216: "
    "NCCL operation async_err failed: remote process exited or there was a network error\n"
)
ORDER = "slurmstepd: error: *** STEP 7.0 ON d1 CANCELLED AT 2026-01-11T11:55:01 ***\n"


def test_a_lost_peer_before_the_order_to_end_is_not_a_cancellation(diagnose: Run) -> None:
    assert diagnose(STEPS + LOST + ORDER).failure_type == "nccl_timeout_unexplained"
    assert diagnose(STEPS + ORDER + LOST).failure_type != "nccl_timeout_unexplained"


def test_who_notices_that_ranks_differ_is_not_to_blame(diagnose: Run) -> None:
    found = diagnose(
        "[rank2]: EI0005: 2026-02-02-06:32:27.781.599 The arguments for collective communication are inconsistent "
        "between ranks:parameter count, local end 128, remote end 64\n"
    )
    assert (found.failure_type, found.suspects.ranks) == ("rank_divergence", [])


def test_the_rank_whose_exception_names_the_object_that_failed(diagnose: Run) -> None:
    tool = (
        "download failed: s3://corpus/shards/shard-000221.tar to - Connection was closed before we received a valid "
        'response from endpoint URL: "https://corpus.s3.us-east-1.amazonaws.com/shards/shard-000221.tar".\n'
    )

    def raised(rank: int, shard: int) -> str:
        return (
            f"[rank{rank}]: Traceback (most recent call last):\n"
            f'[rank{rank}]:   File "/x/webdataset/gopen.py", line 98, in wait_for_child\n'
            f'[rank{rank}]: OSError: (("pipe:aws s3 cp s3://corpus/shards/shard-{shard:06d}.tar -",), {{}}): exit 1 (read) {{}}\n'
        )

    found = diagnose(STEPS + tool + raised(6, 221))
    assert (found.failure_type, found.suspects.ranks) == ("object_store_error", [6])
    assert diagnose(STEPS + tool + raised(6, 221) + raised(7, 221)).suspects.ranks == []


def test_a_single_traceback_is_of_the_single_process_that_ended(diagnose: Run) -> None:
    raised = (
        "Traceback (most recent call last):\n"
        '  File "/w/train.py", line 7, in save\n'
        "FileNotFoundError: [Errno 2] No such file or directory: '/runs/ckpt/step=3.ckpt'\n"
    )
    ended = (
        "[rank: 1] Child process with PID 2977 terminated with code 1. Forcefully terminating all other processes to "
        "avoid zombies\n"
    )
    assert diagnose(STEPS + raised + ended).suspects.ranks == [1]
    # With two tracebacks it may be either process.
    assert diagnose(STEPS + raised + raised + ended).suspects.ranks == []


HANG = "HW Exception by GPU node-9 (Agent handle: 0x5b5e27441f40) reason :GPU Hang\n"
WAITED = (
    "[rank{0}]:[E1109 11:40:12.551 ProcessGroupNCCL.cpp:616] [Rank {0}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=920, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600012 milliseconds "
    "before timing out.\n"
)
ABORTED = (
    "train.py FAILED\n------------------------------------------------------\n"
    "Root Cause (first observed failure):\n[0]:\n  time      : 2026-01-09_11:40:13\n  host      : amd-12\n"
    "  rank      : {0} (local_rank: {0})\n  exitcode  : -6 (pid: 8216)\n  error_file: <N/A>\n"
    "  traceback : Signal 6 (SIGABRT) received by PID 8216\n"
)


def test_who_waited_in_vain_did_not_feel_a_fault_of_a_gpu(diagnose: Run) -> None:
    assert diagnose(STEPS + HANG + WAITED.format(1)).suspects.ranks == []
    found = diagnose(STEPS + HANG + WAITED.format(1) + ABORTED.format(5))
    assert (found.failure_type, found.suspects.ranks) == ("gpu_internal_fault", [5])
    # NCCL ends a rank that waited in vain with the same signal.
    assert diagnose(STEPS + HANG + WAITED.format(5) + ABORTED.format(5)).suspects.ranks == []


def test_a_rocm_agent_is_no_gpu_index(diagnose: Run) -> None:
    assert diagnose(STEPS + HANG).suspects.gpus == []


def test_torch_npu_heads_what_its_library_says_with_the_rank(diagnose: Run) -> None:
    head = "[ERROR] 2026-02-02-02:02:02 (PID:77, Device:3, RankID:{0}) ERR02200 DIST call hccl api failed.\n"
    said = (
        "RuntimeError: [ERROR] HCCL error in: torch_npu/csrc/distributed/ProcessGroupHCCL.cpp:64\n"
        + head
        + "EJ0001: 2026-02-02-02:02:02.112.001 Failed to initialize the HCCP process. Reason: Maybe the last training "
        "process is running.\n"
    )
    found = diagnose(said.format(11))
    assert (found.failure_type, found.suspects.ranks) == ("gpu_occupied_by_other_process", [11])
    assert diagnose(said.format(-1)).suspects.ranks == []


def test_the_rank_whose_own_nccl_call_failed(diagnose: Run) -> None:
    warned = (
        "gpu-a9:22220:22220 [0] bootstrap.cc:48 NCCL WARN Bootstrap : no socket interface found\n"
    )
    own = (
        "[rank{0}]: torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/"
        "ProcessGroupNCCL.cpp:1691, internal error - please report this issue to the NCCL developers\n"
    )
    waits = (
        "[rank1]: torch.distributed.DistBackendError: [1] is setting up NCCL communicator and retrieving ncclUniqueId "
        "from [0] via c10d key-value store by key '0', but store->get('0') got error: Connection reset by peer\n"
    )
    found = diagnose(warned + own.format(0) + waits)
    assert (found.failure_type, found.suspects.ranks) == ("net_interface_misconfig", [0])
    assert diagnose(warned + own.format(0) + own.format(4)).suspects.ranks == []


def test_who_lost_a_peer_on_another_node_did_not_feel_its_fault(diagnose: Run) -> None:
    nic = (
        "Jan  5 03:11:09 hx-17 kernel: [81.1] mlx5_core 0000:5e:00.0: wait_func:1195:(pid 77): ACCESS_REG(0x805) timeout. "
        "Will cause a leak of a command resource\n"
    )
    lost = (
        "hx-04: [rank35]:[E105 03:11:31.1 ProcessGroupNCCL.cpp:1515] [PG 0 Rank 35] Process group watchdog thread terminated "
        "with exception: NCCL error: {}\n"
    )
    for why in (
        "remote process exited or there was a network error, NCCL version 2.20.5",
        "unhandled system error, NCCL version 2.20.5",
    ):
        found = diagnose(STEPS + nic + lost.format(why))
        assert (found.suspects.ranks, found.suspects.nodes) == ([], ["hx-17"])


def test_the_address_of_an_amd_gpu(diagnose: Run) -> None:
    found = diagnose(STEPS + "[22100.6] amdgpu 0000:43:00.0: amdgpu: GPU mode1 reset failed\n")
    assert found.failure_type == "gpu_internal_fault"
    assert [gpu.gpu for gpu in found.suspects.gpus] == ["0000:43:00.0"]


def _qp(teller: str, own: str, other: str) -> str:
    return (
        f"{teller}:9105:9405 [5] ibvwrap.c:262 NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_5:1, "
        f"curr state INIT, next state RTR, local GID index 3, local GID ::ffff:10.44.5.{own}, remote GID ::ffff:10.44.5.{other}\n"
    )


def test_whom_all_complaints_are_about_or_come_from_is_accused_by_the_name_it_gives_itself(
    diagnose,
):
    log = _qp("hgx-08", "19", "22") + _qp("hgx-10", "21", "22") + _qp("hgx-11", "22", "19")
    assert diagnose(log).suspects.nodes == ["hgx-11"]


def test_two_that_complain_of_each_other_do_not_tell(diagnose):
    log = _qp("hgx-08", "19", "22") + _qp("hgx-11", "22", "19")
    assert "hgx-11" not in diagnose(log).suspects.nodes


def test_a_link_local_address_is_no_host(diagnose):
    log = "".join(
        _qp(f"hgx-{n}", str(n), "99").replace("::ffff:10.44.5.99", "fe80::ba3f:d2ff:fe11:7a02")
        for n in (11, 12, 13)
    )
    assert diagnose(log).suspects.nodes == []


def test_the_rank_whose_fingerprint_differs_is_the_one_that_left_the_sequence(diagnose):
    said = (
        "[rank{r}]: RuntimeError: Detected mismatch between collectives on ranks. Rank {r} is running collective: "
        "CollectiveFingerPrint(SequenceNumber=1911, OpType={op}, TensorShape=[{n}], TensorDtypes=Float)\n"
    )
    calls = {
        1: ("ALLREDUCE", 512),
        3: ("BROADCAST", 64),
        0: ("ALLREDUCE", 512),
        2: ("ALLREDUCE", 512),
    }
    found = diagnose("".join(said.format(r=r, op=op, n=n) for r, (op, n) in calls.items()))
    assert (found.failure_type, found.suspects.ranks) == ("rank_divergence", [3])


def test_the_host_that_announced_dockers_bridge_is_the_one_whose_interface_is_wrong(diagnose):
    used = "".join(
        f"dgx-0{n}:7{n}00:7{n}00 [0] NCCL INFO Bootstrap : Using enp97s0:10.141.0.{n}<0>\n"
        for n in (1, 2)
    )
    used += "dgx-03:7300:7300 [0] NCCL INFO Bootstrap : Using docker0:172.17.0.1<0>\n"
    lost = "".join(
        f"dgx-0{n}:7{n}00:7{n}60 [0] misc/socket.cc:533 NCCL WARN socketPollConnect: Connect to 172.17.0.1<41267> returned "
        "111(Connection refused) errno 115(Operation now in progress)\n"
        for n in (1, 2)
    )
    assert diagnose(used + lost).suspects.nodes == ["dgx-03"]
    assert diagnose(lost).suspects.nodes in ([], ["dgx-01"])  # every host has that address


def test_one_name_of_a_node_with_eight_processes_is_no_rank(diagnose):
    log = (
        "0: cn-11 NODE_RANK=0 NPROC=8\n1: cn-12 NODE_RANK=1 NPROC=8\n2: cn-13 NODE_RANK=2 NPROC=8\n"
        "2: cn-13:302:302 [0] NCCL INFO Bootstrap : Using eth0:10.1.0.3<0>\n"
        "srun: error: Node failure on cn-13\n"
    )
    found = diagnose(log)
    assert (found.suspects.nodes, 2 in found.suspects.ranks) == (["cn-13"], False)
