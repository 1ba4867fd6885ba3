"""A rank, a node or a cause that stands in another line than the failure: headings, monitors, launchers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rerail.domain.diagnosis import Diagnosis, Outcome

Run = Callable[[str | dict[str, str]], Diagnosis]

STEPS = "".join(f"step {i} loss 2.{i}\n" for i in range(1, 6))
SAVE_FAILED = (
    "[rank0]: torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([{rank}])\n"
    "[rank0]: Traceback (most recent call last): (RANK {rank})\n"
    '[rank0]:   File "/opt/torch/distributed/checkpoint/filesystem.py", line 431, in _write_item\n'
    "[rank0]:     stream.write(data)\n"
    "[rank0]: OSError: [Errno 28] No space left on device\n"
)
COMPOSER = (
    "ERROR:composer.cli.launcher:Rank 3 crashed with exit code 1.\n"
    "----------Begin global rank 3 STDERR----------\n"
    "Traceback (most recent call last):\n"
    '  File "/job/main.py", line 24, in <module>\n'
    "    run(cfg)\n"
    "AttributeError: 'NoneType' object has no attribute 'shape'\n"
    "----------End global rank 3 STDERR----------\n"
)
PROXY = (
    "gn4:3028:6152 [1] include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'\n"
    "gn4:3028:6152 [1] NCCL INFO proxy.cc:1377 -> 1\n"
    "gn4:3028:6152 [1] proxy.cc:1519 NCCL WARN [Proxy Service 13] Failed to execute operation Setup from rank 13, retcode 1\n"
)
HEAP = (
    "double free or corruption (!prev)\n"
    "[2026-02-01 06:04:09,095] torch.distributed.elastic.multiprocessing.api: [ERROR] failed (exitcode: -6) local_rank: 5 "
    "(pid: 21617) of binary: /opt/bin/python\n"
    "Root Cause (first observed failure):\n[0]:\n  time      : 2026-02-01_06:04:07\n  host      : gn-0\n"
    "  rank      : 13 (local_rank: 5)\n  exitcode  : -6 (pid: 21617)\n"
)


MPI_STACK = (
    "MPICH ERROR [Rank 281] [job id 14.0] [Wed Aug 23 06:05:55 2023] [nid01982] - Abort(136982671) (rank 281 in comm 0): "
    "Fatal error in PMPI_Waitall: Other MPI error, error stack:\n"
    "PMPI_Waitall(339)..............: MPI_Waitall(count=26, req_array=0x1006e9b0) failed\n"
    "MPIDI_OFI_handle_cq_error(1062): OFI poll failed (ofi_events.c:1064:MPIDI_OFI_handle_cq_error:Input/output error - "
    "UNDELIVERABLE)\n"
)


@pytest.mark.parametrize(
    ("log", "leaf", "rank"),
    [
        (MPI_STACK, "efa_libfabric_error", 281),
        (STEPS + SAVE_FAILED.format(rank=5), "disk_full_or_quota", 5),
        (COMPOSER, "python_exception", 3),
        (PROXY, "cuda_oom", 13),
        (HEAP, "process_segfault", 13),
    ],
)
def test_a_heading_or_a_neighbour_names_the_rank(
    diagnose: Run, log: str, leaf: str, rank: int
) -> None:
    found = diagnose(log)
    assert (found.failure_type, found.suspects.ranks) == (leaf, [rank])


def test_the_end_of_a_section_ends_its_rank(diagnose: Run) -> None:
    section = COMPOSER.partition("\n")[
        2
    ]  # without the launcher's line, which tells the rank as well
    head, _, tail = section.partition("Traceback")
    found = diagnose(head + "----------End global rank 3 STDERR----------\nTraceback" + tail)
    assert found.suspects.ranks == []


@pytest.mark.parametrize(
    "line",
    [
        "process 1 terminated with signal SIGKILL",
        "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGKILL",
    ],
)
def test_a_child_of_spawn_is_the_rank_on_one_node(diagnose: Run, line: str) -> None:
    assert diagnose(STEPS + f"Exception: {line}\n").suspects.ranks == [1]
    several = "[rank1]: step 5\n[rank19]: step 5\n"
    assert diagnose(STEPS + several + f"Exception: {line}\n").suspects.ranks == []


def stalled(*ranks: int) -> str:
    return (
        "[1,0]<stderr>:[2026-02-01 16:35:15.1: W /tmp/horovod/common/stall_inspector.cc:105] One or more tensors were "
        "submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks "
        "for more than 60 seconds.\n[1,0]<stderr>:Missing ranks:\n"
        + "".join(
            f"[1,0]<stderr>:{rank}: [grad/AddN_103_0, grad/AddN_104_0 ...]\n" for rank in ranks
        )
    )


def test_horovod_names_who_did_not_come_and_the_interrupt_is_not_the_cause(diagnose: Run) -> None:
    labels = "".join(f"[1,{rank}]<stdout>:step 880 loss 1.7\n" for rank in range(4))
    found = diagnose(labels + stalled(2) + "mpirun: killing job...\n")
    assert (found.failure_type, found.suspects.ranks) == ("nccl_timeout_unexplained", [2])


def test_ranks_that_all_miss_something_accuse_nobody(diagnose: Run) -> None:
    labels = "".join(f"[1,{rank}]<stdout>:step 880 loss 1.7\n" for rank in range(2))
    assert diagnose(labels + stalled(0, 1) + "mpirun: killing job...\n").suspects.ranks == []


def test_a_stall_that_training_outlived_is_not_the_cause(diagnose: Run) -> None:
    more = "".join(f"step {i} loss 1.{i}\n" for i in range(6, 20))
    assert diagnose(STEPS + stalled(2) + more).outcome is Outcome.NO_FAILURE


@pytest.mark.parametrize("monitor", ["RankMonitorServer:34", "RankMonServer4411@gn-17:34"])
def test_the_monitor_of_one_rank_names_it(diagnose: Run, monitor: str) -> None:
    found = diagnose(
        STEPS
        + "[rank12]: step 5\n[rank13]: step 5\n"
        + f"[2026-07-31 08:47:01,920] [WARNING] [{monitor}] Did not get subsequent heartbeat. Waited 171.92 seconds.\n"
    )
    assert (found.failure_type, found.suspects.ranks) == ("nccl_timeout_unexplained", [34])


@pytest.mark.parametrize(
    ("line", "leaf"),
    [
        (
            "EI0002: [PID: 2291] 2026-03-28-09:11:40.118.223 The wait execution of the Notify register times out. Reason: "
            "The Notify register has not received the Notify record from remote rank [3].base information: [streamID:[7]]",
            "nccl_timeout_unexplained",
        ),
        (
            "E coordination_service.cc:1170] /job:jax_worker/replica:0/task:3 has been set to ERROR in coordination "
            "service: UNAVAILABLE: Task /job:jax_worker/replica:0/task:3 heartbeat timeout.\n"
            "F client.h:80] Terminating process because the JAX distributed service detected fatal errors.\n"
            "Fatal Python error: Aborted",
            "process_exit_unexplained",
        ),
    ],
)
def test_who_is_missed_by_the_others_is_named(diagnose: Run, line: str, leaf: str) -> None:
    found = diagnose(STEPS + line + "\n")
    assert (found.failure_type, found.suspects.ranks) == (leaf, [3])


def test_ray_names_the_node_that_is_short_of_memory_below_the_exception(diagnose: Run) -> None:
    found = diagnose(
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\n"
        "Memory on the node (IP: 10.20.0.7, ID: 96c1a9b0f2) where the task (task ID: b2ba, name=train, pid=51240, memory "
        "used=102.11GB) was running was 478.03GB / 503.18GB (0.950022), which exceeds the memory usage threshold of 0.95.\n"
    )
    assert (found.failure_type, found.suspects.nodes) == ("host_oom_kill", ["10.20.0.7"])


def accusation(teller: str, peer: str = "10.8.0.44") -> str:
    return (
        f"{teller}:411:812 [0] transport/net_ib.cc:1695 NCCL WARN NET/IB : Got completion from peer {peer}<40112> with "
        "status=12 opcode=32600 len=0 vendor err 129 (Send) hca mlx5_0\n"
    )


def test_a_peer_that_several_hosts_cannot_reach_is_named_by_its_host(diagnose: Run) -> None:
    start = "gn-9:1:2 [0] NCCL INFO Bootstrap : Using eth0:10.8.0.44<0>\n"
    several = accusation("gn-1") + accusation("gn-2")
    assert diagnose(several).suspects.nodes == ["10.8.0.44"]
    assert diagnose(start + several).suspects.nodes == ["gn-9"]
    apart = accusation("gn-1", "10.8.0.2") + accusation("gn-2", "10.8.0.1")
    assert "10.8.0.2" not in diagnose(apart).suspects.nodes


def test_the_box_of_intel_mpi_names_rank_and_host_of_a_killed_process(diagnose: Run) -> None:
    found = diagnose(
        STEPS
        + "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   RANK 21 PID 77121 RUNNING AT gnb-3\n"
        "=   KILLED BY SIGNAL: 9 (Killed)\n"
    )
    assert found.failure_type == "process_killed_unexplained"
    assert (found.suspects.ranks, found.suspects.nodes) == ([21], ["gnb-3"])


def test_a_process_killed_on_another_node_comes_before_the_lost_connection(diagnose: Run) -> None:
    found = diagnose(
        "worker-3: [2026-06-08 10:02:56,102] [ERROR] [launch.py:434:sigkill_handler] ['python', 'main.py'] exits with "
        "return code = -9\n"
        "worker-1: NET/IB : Got completion from peer 10.2.0.13<51002> with error 12, opcode 0, len 0, vendor err 129\n"
        "worker-1: [2026-06-08 10:03:20,551] [ERROR] [launch.py:434:sigkill_handler] ['python', 'main.py'] exits with "
        "return code = 1\n"
    )
    assert (found.failure_type, found.suspects.nodes) == (
        "process_killed_unexplained",
        ["worker-3"],
    )


def test_the_segmentation_fault_stands_behind_a_slingshot_peer_that_is_gone(diagnose: Run) -> None:
    found = diagnose(
        "MPICH ERROR [Rank 0] [job id 2.0] [Mon May 15 14:32:54 2023] [x1n0] - Abort(1008846991) (rank 0 in comm 0): "
        "Fatal error in PMPI_Recv: Other MPI error, error stack:\n"
        "MPIDI_OFI_handle_cq_error(1059): OFI poll failed (ofi_events.c:1061:MPIDI_OFI_handle_cq_error:Input/output "
        "error - PTLTE_NOT_FOUND)\n"
        "srun: error: x1n1: task 1: Segmentation fault\n"
        "srun: error: x1n0: task 0: Exited with exit code 255\n"
    )
    assert (found.failure_type, found.suspects.ranks) == ("process_segfault", [1])
    assert found.suspects.nodes == ["x1n1"]


def test_syslogd_names_the_host_of_a_kernel_message_on_a_terminal(diagnose: Run) -> None:
    found = diagnose(
        STEPS + "Message from syslogd@wsi-gpu3 at Jul 27 11:02:18 ...\n"
        " kernel:[ 5508.496754] watchdog: BUG: soft lockup - CPU#72 stuck for 23s! [cuda-EvtHandlr:4856]\n"
    )
    assert (found.failure_type, found.suspects.nodes) == ("host_hang", ["wsi-gpu3"])


def test_a_store_on_localhost_accuses_no_machine(diagnose: Run) -> None:
    found = diagnose(
        "[rank3]:[W423 10:41:14.25 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=51, addr=[localhost]:40714, "
        "remote=[localhost]:29500): Connection reset by peer\n"
    )
    assert found.failure_type != "node_crash"


def test_megatron_seats_its_ranks_and_an_end_by_its_rerun_is_no_success(diagnose: Run) -> None:
    found = diagnose(
        "ERROR:megatron.core.rerun_state_machine:Unexpected result nan on rank 3 at iteration #3 invocation #2 "
        "(message='found NaN in local grad norm')\n"
        "ERROR:megatron.core.rerun_state_machine:Rank 3, node gn-17, device 3, iteration #3: First rerun: unexpected "
        "result is reproducible within the tolerance (nan = nan). Need to rerun on a different GPU to verify correctness\n"
        "[after training is done] datetime: 2026-05-27 03:11:40 \n"
    )
    assert (found.failure_type, found.suspects.ranks, found.suspects.nodes) == (
        "loss_nan",
        [3],
        ["gn-17"],
    )


def test_what_a_child_of_the_program_prints_behind_its_end_is_teardown(diagnose: Run) -> None:
    found = diagnose(
        STEPS + "INFO:gluonts.trainer:End model training\nProcess ForkServerProcess-3:\n"
        'Traceback (most recent call last):\n  File "/opt/multiprocessing/connection.py", line 379, in _recv\n'
        "    chunk = read(handle, remaining)\nConnectionResetError: [Errno 104] Connection reset by peer\n"
    )
    assert found.outcome is Outcome.NO_FAILURE


def test_a_process_that_came_to_its_end_without_an_error_is_no_failure(diagnose: Run) -> None:
    warning = (
        "[rank0]:[W227 10:54:51.98 ProcessGroupNCCL.cpp:1374] Warning: WARNING: process group has NOT been destroyed "
        "before we destruct ProcessGroupNCCL.\n"
    )
    assert diagnose("Training took 2:11:40\n" + warning).outcome is Outcome.NO_FAILURE
    failed = 'Traceback (most recent call last):\n  File "/job/t.py", line 2, in <module>\n    x()\nNameError: x\n'
    assert diagnose(failed + warning).outcome is Outcome.FAILURE


def test_the_task_in_front_of_a_line_has_its_node_from_srun(diagnose: Run) -> None:
    found = diagnose(
        "0: [rank4]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.00 GiB. GPU 4 has a total capacity of "
        "79.11 GiB of which 2.11 GiB is free.\n"
        "0: E0529 04:10:33.120000 900 torch/distributed/elastic/multiprocessing/api.py:882] failed (exitcode: 1) local_rank: 4 "
        "(pid: 944) of binary: /opt/bin/python\n"
        "srun: error: gn-07: task 0: Exited with exit code 1\n"
        "1: [rank11]: RuntimeError: NCCL communicator was aborted on rank 11.\n"
        "srun: error: gn-09: tasks 1-2: Exited with exit code 1\n"
    )
    assert found.first_fault
    assert (found.first_fault.rank, found.first_fault.node) == (4, "gn-07")


UNLIKE = (
    "FloatingPointError: Fatal error: gradients are inconsistent between workers. Try --ddp-backend=legacy_ddp. Or are you "
    "mixing up different generation of GPUs in training?\n"
    + "-" * 80
    + "\ngrad_norm across the workers:\n"
)


@pytest.mark.parametrize(
    ("norms", "ranks"),
    [
        (("1.61022377", "1.61022377", "0.00000000", "1.61022377"), [2]),
        (("1.61022377", "1.61022377", "0.20000000", "0.20000000"), []),
        (("1.61022377", "1.70000000", "0.20000000", "0.30000000"), []),
        (("1.61022377", "0.20000000"), []),
    ],
)
def test_the_only_rank_with_another_norm_is_named(
    diagnose: Run, norms: tuple[str, ...], ranks: list[int]
) -> None:
    table = "".join(f"rank {rank:3d} = {norm}\n" for rank, norm in enumerate(norms))
    found = diagnose(STEPS + UNLIKE + table + "\n" + "-" * 80 + "\n")
    assert (found.failure_type, found.suspects.ranks) == ("rank_divergence", ranks)


def test_a_store_that_is_missed_behind_the_end_of_another_process_is_no_failure(
    diagnose: Run,
) -> None:
    lost = (
        "[rank1]:[W1129 11:57:00.011 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=3, addr=[wk-1]:44118, "
        "remote=[wk-0]:29500): failed to recv, got 0 bytes\n"
    )
    end = (
        "[rank0]:[W1129 11:56:59.150 ProcessGroupNCCL.cpp:1250] Warning: WARNING: process group has NOT been destroyed "
        "before we destruct ProcessGroupNCCL.\n"
    )
    assert diagnose(STEPS + end + lost).outcome is Outcome.NO_FAILURE
    assert diagnose(STEPS + lost + end).outcome is not Outcome.NO_FAILURE


@pytest.mark.parametrize(
    "cry",
    [
        "[2026-01-27 08:56:02,210] [ERROR] [sidecar.py:1330] the mixer lost its spindle",
        "2026-01-27 08:56:02 ERROR  QQQ:spin  the mixer lost its spindle",
        "2026-01-27 08:56:02 | ERROR | mixer | spindle lost",
        'level=error msg="spindle lost"',
    ],
)
def test_an_error_that_no_rule_knows_behind_the_last_step_is_not_taken_for_a_healthy_run(
    diagnose: Run, cry: str
) -> None:
    found = diagnose(STEPS + cry + "\n")
    assert (found.outcome, found.first_fault.line if found.first_fault else None) == (
        Outcome.INCONCLUSIVE,
        6,
    )
    assert diagnose(
        STEPS + cry + "\n" + "".join(f"step {i} loss 2.{i}\n" for i in range(6, 9))
    ).outcome is (Outcome.NO_FAILURE)


def test_ranks_that_each_submitted_something_else_diverged(diagnose: Run) -> None:
    log = (
        "[0]<stdout>:Epoch 0: loss 2.3\n[1]<stdout>:Epoch 0: loss 2.3\n"
        "[0]<stderr>:[2020-12-29 16:51:57.7: W horovod/common/stall_inspector.cc:105] One or more tensors were submitted "
        "to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than "
        "60 seconds. This may indicate that different ranks are trying to submit different tensors\n"
        "[0]<stderr>:Missing ranks:\n{}"
    )
    lists = "[0]<stderr>:0: [broadcast.size]\n[0]<stderr>:1: [allreduce.c1, allreduce.c2 ...]\n"
    found = diagnose(log.format(lists))
    assert (found.failure_type, found.suspects.ranks) == ("rank_divergence", [0, 1])
    alike = "[0]<stderr>:0: [allreduce.c1]\n[0]<stderr>:1: [allreduce.c1]\n"
    assert diagnose(log.format(alike)).failure_type != "rank_divergence"


def watchdog_of_old(seq: int, op: str, rank: int) -> str:
    return (
        f"[E ProcessGroupNCCL.cpp:475] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, "
        f"OpType={op}, NumelIn=768, NumelOut=768, Timeout(ms)=1800000) ran for 180000{rank} milliseconds before timing out.\n"
    )


@pytest.mark.parametrize(
    ("told", "leaf", "ranks"),
    [
        ([(786, "ALLGATHER", 0), (791, "ALLREDUCE", 1), (786, "ALLGATHER", 2)], "rank_divergence", [1]),
        # Two groups: a number that stands twice.
        ([(786, "ALLGATHER", 0), (791, "ALLREDUCE", 0), (786, "ALLGATHER", 1)], "nccl_timeout_unexplained", None),
        # The last completes alone as its root.
        ([(786, "BROADCAST", 0), (791, "ALLREDUCE", 1), (786, "BROADCAST", 2)], "nccl_timeout_unexplained", None),
    ],
)  # fmt: skip
def test_a_rank_further_on_in_another_operation_of_one_group_diverged(
    diagnose: Run, told: list[tuple[int, str, int]], leaf: str, ranks: list[int] | None
) -> None:
    found = diagnose("".join(watchdog_of_old(*one) for one in told))
    assert found.failure_type == leaf
    assert ranks is None or found.suspects.ranks == ranks


@pytest.mark.parametrize(
    "extra",
    [
        'gpub:   File "/w/train.py", line 8, in main\n',
        "x: [INFO] [launch.py:161:main] global_rank_mapping=defaultdict(<class 'list'>, {'gpub': [0, 1], 'gpux': [2, 3]})\n",
    ],
)
def test_a_word_in_front_of_lines_is_a_host_where_the_log_shows_it(
    diagnose: Run, extra: str
) -> None:
    failed = (
        "gpub: Traceback (most recent call last):\ngpub: OSError: [Errno 24] Too many open files\n"
    )
    assert diagnose(failed).suspects.nodes == []
    named = "gpu-b" if "File" in extra else "gpub"
    found = diagnose((extra + failed).replace("gpub", named))
    assert found.suspects.nodes == [named]
    # A logger's level in front of a frame is none.
    assert diagnose(failed.replace("gpub: ", "ERROR: ")).suspects.nodes == []


def test_the_rank_whose_exception_quotes_the_warning_is_its_process(diagnose: Run) -> None:
    warning = "Call to ibv_create_qp failed with error Cannot allocate memory"
    raised = "torch.distributed.DistBackendError: NCCL error in: ../NCCLUtils.hpp:317, {}, NCCL version 2.20.5\n"
    log = (
        f"node08:6561:6720 [0] misc/ibvwrap.cc:190 NCCL WARN {warning}\n"
        + "[rank0]: "
        + raised.format("remote process exited or there was a network error")
        + "[rank8]: "
        + raised.format("unhandled system error (run with NCCL_DEBUG=INFO for details)")
        + "[rank8]: Last error:\n"
    )
    quoted = f"[rank8]: {warning}\n"
    assert diagnose(log + quoted).suspects.ranks == [8]
    assert (
        diagnose(log + quoted + f"[rank0]: Last error:\n[rank0]: {warning}\n").suspects.ranks == []
    )
