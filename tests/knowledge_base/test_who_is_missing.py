"""Whom all others wait for, by what monitors, frameworks and a look at one process tell; and ranks taken twice."""

from __future__ import annotations

from rerail.assistant.pipeline import diagnose_texts
from rerail.domain.diagnosis import Diagnosis, Outcome


def said(text: str) -> Diagnosis:
    return diagnose_texts({"job.log": text}).diagnosis


def host(found: Diagnosis) -> str | None:
    return found.first_fault.node if found.first_fault is not None else None


def lightning(ranks: str, *, world: int = 4) -> str:
    return "".join(
        f"Initializing distributed: GLOBAL_RANK: {rank}, MEMBER: {int(rank) + 1}/{world}\n"
        for rank in ranks
    )


LIMIT = "slurmstepd: error: *** STEP 17.0 ON n1 CANCELLED AT 2026-03-01T02:31:14 DUE TO TIME LIMIT ***\n"


def test_ranks_that_two_nodes_take_are_why_the_job_waited() -> None:
    found = said(lightning("0101") + LIMIT)
    assert found.failure_type == "dist_env_misconfig"
    assert found.first_fault is not None and found.first_fault.line == 3


def test_a_restart_announces_all_ranks_again() -> None:
    assert said(lightning("01230123") + LIMIT).failure_type == "job_time_limit"
    error = "RuntimeError: CUDA error: an illegal memory access was encountered\n"
    twice = said(lightning("01") + error + lightning("01"))
    assert twice.failure_type != "dist_env_misconfig"


STALLED = (
    "WARNING: One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are"
    " waiting for remainder of ranks for more than 60 seconds. Stalled ops: grad/w1 [ready ranks: {ready}]\n"
)
MAP = "".join(
    f" Data for node: gn0{node}\tNum slots: 4\tMax slots: 0\tNum procs: 4\n"
    + "".join(
        f" \tProcess OMPI jobid: [1,1] App: 0 Process rank: {rank} Bound: N/A\n"
        for rank in range(4 * node, 4 * node + 4)
    )
    for node in (1, 2)
).replace("rank: 8", "rank: 0").replace("rank: 9", "rank: 1").replace("rank: 10", "rank: 2").replace("rank: 11", "rank: 3")  # fmt: skip


def test_who_is_not_among_those_that_are_ready_is_missing() -> None:
    found = said(MAP + 2 * STALLED.format(ready="0, 2, 3, 4, 5, 6, 7"))
    assert found.suspects.ranks == [1] and found.suspects.nodes == ["gn02"]


def test_few_that_are_ready_miss_no_one_in_particular() -> None:
    assert said(MAP + 2 * STALLED.format(ready="0, 2")).suspects.ranks == []


MONITOR = "[2026-03-12 03:14:05,331] [WARNING] [RankMonServer118230@gn-22:{rank}] Was out of section for 362.10 seconds. Timeout is 360.00 seconds.\n"
KILLED = "[2026-03-12 03:14:06,904] [ERROR] [ft_launcher118102@gn-22] failed (exitcode: -9) local_rank: 3 (pid: 118777) of binary: /usr/bin/python3\n"


def test_who_is_killed_by_its_monitor_hung_before() -> None:
    found = said(MONITOR.format(rank=43) + KILLED)
    assert found.failure_type == "nccl_timeout_unexplained"
    assert found.suspects.ranks == [43] and found.suspects.nodes == ["gn-22"]


def test_a_process_that_died_before_its_monitor_spoke_was_not_killed_by_it() -> None:
    early = KILLED.replace("03:14:06", "03:02:06")
    assert said(early + MONITOR.format(rank=43)).failure_type == "process_killed_unexplained"


TIMEOUT = (
    "gn-a1: [rank0]:[E418 22:31:08.577102241 ProcessGroupNCCL.cpp:688] [Rank 0] Watchdog caught collective operation"
    " timeout: WorkNCCL(SeqNum=3, OpType=ALLREDUCE, NumelIn=33554432, NumelOut=33554432, Timeout(ms)=600000) ran for"
    " 600019 milliseconds before timing out.\n"
)
STARTS = "".join(
    f"gn-{name}: + torchrun --nnodes=2 --node_rank={number} --nproc_per_node=1 train.py\n"
    for number, name in enumerate(("a1", "b1"))
)
COMPILES = (
    'user@gn-{host}:~$ py-spy dump --pid 7120\nProcess 7120: python3 train.py\nPython v3.10.12 (/usr/bin/python3.10)\n\nThread 7120 (active): "MainThread"\n'
    "    make_cubin (triton/backends/nvidia/compiler.py:433)\n    <module> (train.py:341)\n"
)


def test_the_stack_of_the_one_that_is_awaited_tells_what_it_did() -> None:
    found = said(STARTS + TIMEOUT + COMPILES.format(host="b1"))
    assert found.failure_type == "nccl_slow_rank_timeout"
    assert found.suspects.ranks == [1] and found.suspects.nodes == ["gn-b1"]
    other = said(STARTS + TIMEOUT + COMPILES.format(host="a1"))
    assert other.failure_type == "nccl_timeout_unexplained"


def test_the_task_of_jax_that_never_came_is_in_the_pod_of_its_number() -> None:
    found = said(
        "E0220 10:14:02.509318 2214 coordination_service.cc:627] DEADLINE_EXCEEDED: Barrier timed out."
        " Id: [Init]Wait_for_all_tasks_to_register::0. Some timed out task names:\n"
        "/job:jax_worker/replica:0/task:19\n\n$ kubectl get pods -o wide\n"
        "NAME              READY   STATUS              RESTARTS   AGE   IP       NODE\n"
        "mx-7b-19-x7kqd    0/2     ContainerCreating   0          63m   <none>   gke-pool-q2tn\n"
    )
    assert found.suspects.ranks == [19] and host(found) == "gke-pool-q2tn"


def test_the_host_of_which_nobody_gave_up_did_not_come() -> None:
    gave_up = (
        "worker-1: RuntimeError: Timed out initializing process group in store based barrier on rank: {rank}, for key:"
        " store_based_barrier_key:1 (world_size=8, worker_count=4, timeout=0:30:00)\n"
    )
    waits = "".join(gave_up.format(rank=rank) for rank in (4, 5, 6, 7))
    builds = "worker-0: > compiling dataset index builder ...\n"
    found = said("worker-1: start\n" + builds + waits)
    assert found.failure_type == "rendezvous_timeout" and host(found) == "worker-0"
    both = said("worker-1: start\n" + builds + waits + gave_up.format(rank=1).replace("-1:", "-0:"))
    assert host(both) is None


def test_a_command_that_looks_at_another_host_tells_nothing_of_its_own() -> None:
    found = said(
        "10.112.13.81: [rank27]: RuntimeError: CUDA error: unspecified launch failure\n"
        "[root@gpu-h800-01 ~]# ssh 10.112.13.81 dmesg -T | grep -i xid\n"
        "[Mon Aug 11 23:06:05 2025] NVRM: Xid (PCI:0000:5d:00): 109, pid=71203, name=python3, Ch 0000004b, errorString"
        " CTX SWITCH TIMEOUT, Info 0x5c03f\n"
    )
    assert found.suspects.nodes == ["10.112.13.81"]


def test_an_epoch_that_begins_behind_a_barrier_shows_that_it_was_survived() -> None:
    barrier = "[E ProcessGroupGloo.cpp:137] Rank 1 failed to pass monitoredBarrier in 60000 ms\n"
    before = (
        "2026-03-01 18:39:22,118 DEBUG TRAIN Batch 6/41300 loss 6.114258 lr 0.00048610 rank 1\n"
    )
    after = (
        "2026-03-01 18:42:03,515 INFO Epoch 7 TRAIN info lr 0.00048611\n"
        "2026-03-01 18:42:31,902 DEBUG TRAIN Batch 7/100 loss 5.902117 lr 0.00048588 rank 1\n"
    )
    assert said(before + barrier + after).outcome is not Outcome.FAILURE
    assert said(before + barrier).outcome is Outcome.FAILURE


STALL = (
    "[1,0]<stderr>:[2026-06-15 13:37:02.118340: W horovod/common/stall_inspector.cc:107] One or more tensors were submitted"
    " to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60"
    " seconds.\n[1,0]<stderr>:Missing ranks:\n[1,0]<stderr>:4: [grads_0, grads_1 ...]\n"
)


def test_who_reports_a_stall_is_not_whom_the_hanging_host_holds() -> None:
    lockup = "Jun 15 13:35:32 gn-088 kernel: watchdog: BUG: soft lockup - CPU#45 stuck for 22s! [python:3021]\n"
    found = said(STALL + "$ ssh gn-088 journalctl -k\n" + lockup)
    assert found.failure_type == "host_hang"
    assert found.suspects.ranks == [4] and found.suspects.nodes == ["gn-088"]


def test_a_slow_task_is_no_cause_where_all_miss_another() -> None:
    found = said(
        "[pod/hero-0/train] I20260821 03:25:02.337140 124 checkpoint.py:421] Loaded checkpoint, took 1370.9s\n"
        "[pod/hero-0/train] jaxlib.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: restore_done::0."
        " Some timed out task names:\n[pod/hero-0/train] /job:jax_worker/replica:0/task:131\n"
        "[pod/hero-131/train] I20260821 04:10:11.118020 211 restore.py:97] still reading\n"
    )
    assert found.suspects.ranks == [131] and host(found) == "hero-131"


def test_what_a_process_raised_is_not_survived_by_the_beginning_of_an_epoch() -> None:
    steps = "".join(
        f"2026-03-01 18:39:2{n},118 DEBUG TRAIN Batch 6/{100 * n} loss 6.1 lr 0.0004 rank 0\n"
        for n in range(3)
    )
    raised = 'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\nRuntimeError: CUDA error: an illegal memory access was encountered\n'
    behind = "2026-03-01 18:42:03,515 INFO Epoch 7 TRAIN info lr 0.0004\n2026-03-01 18:42:31,902 DEBUG TRAIN Batch 7/100 loss 5.9 lr 0.0004 rank 0\n"
    assert said(steps + raised + behind).failure_type == "cuda_illegal_memory_access"


def test_half_of_a_job_that_starts_twice_takes_no_rank_twice() -> None:
    between = "".join(f"step {n} loss 2.4\n" for n in range(6))
    found = said(lightning("01") + between + lightning("01") + LIMIT)
    assert found.failure_type == "job_time_limit"


def test_the_stack_of_an_exporter_is_not_that_of_the_awaited_rank() -> None:
    seats = "".join(
        f"[rank{r}] rank {r}/4 local_rank {r} host gn-b1 pid {4010 + r}\n" for r in range(4)
    )
    waited = "".join(
        TIMEOUT.replace("gn-a1: ", "").replace("rank0", f"rank{r}").replace("Rank 0", f"Rank {r}")
        for r in (0, 1, 3)
    )
    look = COMPILES.format(host="b1").replace(
        "triton/backends/nvidia/compiler.py", "/opt/exporter/dcgm_exporter.py"
    )
    assert said(seats + waited + look).failure_type == "nccl_timeout_unexplained"


def test_pods_of_other_kinds_have_no_number_of_a_task() -> None:
    lost = "/job:jax_worker/replica:0/task:5 heartbeat timeout\n$ kubectl get pods -o wide\n"
    row = "{pod}    1/1     Running   0   63m   10.2.3.4   gke-z-9\n"
    assert host(said(lost + row.format(pod="node-agent-6f7d8b9c5-xk2lp"))) != "gke-z-9"
    assert host(said(lost + row.format(pod="run-slice-job-1-5-fghij"))) != "gke-z-9"
    assert host(said(lost + row.format(pod="run-job-5-fghij"))) == "gke-z-9"


def test_the_rank_of_a_group_is_not_that_of_the_job() -> None:
    groups = "[rank4] pipeline rank 1/2 host gn-02\n[rank0] EP rank 1/2 host=gn-01\n"
    ecc = "[rank1]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
    assert host(said(groups + ecc)) is None


def test_a_launch_failure_is_the_cause_of_what_comes_behind_it() -> None:
    steps = "".join(f"step {10 * n} loss 2.4 step_time 0.8 s\n" for n in range(6))
    launch = "srun: error: Unable to create step for job 881: Requested node configuration is not available\n"
    missing = "FileNotFoundError: [Errno 2] No such file or directory: 'eval.json'\n"
    assert said(steps + launch + missing).failure_type == "scheduler_launch_failure"


def test_all_ranks_that_are_missing_are_told_however_many() -> None:
    silent = set(range(64, 88))
    lines = "".join(
        f"[rank{rank}]:[E304 01:23:20.000345678 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=9, OpType=ALLGATHER, NumelIn=2, NumelOut=2, Timeout(ms)=600000) ran for "
        "600012 milliseconds before timing out.\n"
        for rank in range(128)
        if rank not in silent
    )
    started = "".join(f"[rank{rank}]: INFO train: rank {rank} of 128\n" for rank in range(128))
    found = said(started + lines)
    assert set(found.suspects.ranks) == silent
    assert "Ranks 64 to 87" in (found.headline or "")


def test_the_torn_last_line_of_a_log_accuses_nobody() -> None:
    started = "".join(f"[rank{rank}]: INFO train: rank {rank} of 16\n" for rank in range(16))
    lines = [
        f"[rank{rank}]:[E304 01:23:20.000345678 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=9, OpType=ALLGATHER, NumelIn=2, NumelOut=2, Timeout(ms)=600000) ran for "
        "600012 milliseconds before timing out."
        for rank in range(16)
        if rank != 5
    ]
    whole = started + "\n".join(lines)
    assert said(whole + "\n").suspects.ranks == [5]
    for cut in (20, 70, 120, 170):
        assert said(whole[:-cut]).suspects.ranks == [5], cut
    # Where several are left, they may stand in what was cut off.
    found = said((started + "\n".join(lines[:9]))[:-20])
    assert found.suspects.ranks == []
    assert any("ends in the middle of a line" in lack.what for lack in found.missing)
