"""Places that a launcher, a scheduler or a shared name tells, where the line of the fault itself tells none."""

from __future__ import annotations

from rerail.assistant.pipeline import diagnose_texts
from rerail.domain.diagnosis import Diagnosis


def told(text: str) -> Diagnosis:
    return diagnose_texts({"job.log": text}).diagnosis


def place(found: Diagnosis) -> tuple[int | None, str | None]:
    first = found.first_fault
    assert first is not None
    return first.rank, first.node


CRASH = """+ jsrun -n 4 -a 6 -g 6 python -u train.py
rank 0 of 24 on h14n02, master h14n02
rank 6 of 24 on h14n07, master h14n02
rank 12 of 24 on h14n11, master h14n02
rank 18 of 24 on h14n12, master h14n02
*** Error in `python': free(): invalid next size (fast): 0x000000002c290740 ***
h14n02:70114:70302 [2] include/socket.h:421 NCCL WARN Net : Connection closed by remote peer h14n07-ib0<51122>
{end}
"""


def test_who_the_launcher_saw_end_first_had_the_fault_that_nobody_signed() -> None:
    end = (
        "ERROR:  One or more process (first noticed rank 9) terminated with signal 6 (core dumped)"
    )
    assert place(told(CRASH.format(end=end))) == (9, "h14n07")
    assert place(told(CRASH.format(end="Exited with exit code 134."))) == (None, None)


def test_two_that_were_seen_first_are_none() -> None:
    end = "\n".join(
        f"ERROR:  One or more process (first noticed rank {rank}) terminated with signal 6"
        for rank in (9, 17)
    )
    assert place(told(CRASH.format(end=end)))[0] is None


def test_first_ranks_of_hosts_are_blocks_only_where_all_hosts_are_known() -> None:
    end = (
        "ERROR:  One or more process (first noticed rank 9) terminated with signal 6 (core dumped)"
    )
    lines = CRASH.format(end=end).splitlines(keepends=True)
    without_one = "".join(line for line in lines if not line.startswith("rank 12"))
    assert place(told(without_one)) == (9, None)


SHARD = """1: [rank13]:[rank13]: Traceback (most recent call last):
0: [rank0]:[rank0]: Traceback (most recent call last):
0: [rank0]:[rank0]:     raise CheckpointException(step, node_failures)
0: [rank0]:[rank0]: torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([13])
0: [rank0]:[rank0]: Traceback (most recent call last): (RANK 13)
0: [rank0]:[rank0]:   File "/opt/venv/torch/serialization.py", line 797, in __init__
0: [rank0]:[rank0]: RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory
1: [rank13]:[rank13]: torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([13])
srun: error: nodeA17: task 0: Exited with exit code 1
srun: error: {host}: task {task}: Exited with exit code 1
"""


def test_a_rank_is_where_its_task_ended_and_not_where_the_one_that_tells_of_it_did() -> None:
    assert place(told(SHARD.format(host="nodeA18", task=1))) == (13, "nodeA18")
    # Of the task that holds the rank nothing is told: the host of who speaks is not its host.
    assert place(told(SHARD.format(host="nodeA19", task=2))) == (13, None)


def test_a_worker_is_the_rank_of_its_launchers_table_behind_any_collector() -> None:
    found = told(
        """t5-2 \u203a E0624 03:10:59.917000 48 site-packages/torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: -9) local_rank: 2 (pid: 117) of binary: /opt/conda/bin/python
t5-0 \u203a [rank1]: socketProgress: Connection closed by remote peer t5-2.t5.ml.svc.cluster.local<38114>
t5-2 \u203a Root Cause (first observed failure):
t5-2 \u203a [0]:
t5-2 \u203a   time      : 2026-06-24_03:10:58
t5-2 \u203a   host      : t5-2.t5.ml.svc.cluster.local
t5-2 \u203a   rank      : 10 (local_rank: 2)
t5-2 \u203a   exitcode  : -9 (pid: 117)
t5-2 \u203a   traceback : Signal 9 (SIGKILL) received by PID 117
"""
    )
    assert (found.failure_type, *place(found)) == ("process_killed_unexplained", 10, "t5-2")


RAY = """(TorchTrainer pid=83344) - (ip=192.168.0.107, pid=83501) world_rank=0, local_rank=0, node_rank=0
(TorchTrainer pid=83344) - (ip=192.168.0.70, pid=9120) world_rank=4, local_rank=0, node_rank=1
(RayTrainWorker pid=83501) lab3090:83501:83777 [0] NCCL INFO Bootstrap : Using eno1:192.168.0.107<0>
(RayTrainWorker pid=9120, ip=192.168.0.70) lab3060:{pid}:9284 [0] NCCL INFO Bootstrap : Using docker0:172.17.0.1<0>
(RayTrainWorker pid=83501) lab3090:83501:83780 [3] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to 172.17.0.1<35479> failed : Connection refused
"""


def test_the_address_and_the_host_beside_one_process_id_are_one() -> None:
    assert place(told(RAY.format(pid=9120))) == (4, "lab3060")


CONSOLE = """h21: [rank3]:[E1102 06:43:21.118 ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=512201, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600049 milliseconds before timing out.
[h21] Nov  2 06:00:01 h21 CROND[2210]: (root) CMD (/usr/lib64/sa/sa1 1 1)
[h23] [5210118.220144] watchdog: BUG: soft lockup - CPU#52 stuck for 26s! [kworker/52:1:88012]
"""


def test_a_serial_console_names_its_host() -> None:
    assert place(told(CONSOLE))[1] == "h23"


def test_ranks_of_brokers_are_none_of_the_job() -> None:
    found = told(
        "5.212s: job.exception type=exec severity=0 tuo1204 (rank 183) terminated before first barrier\n"
    )
    assert place(found) == (None, "tuo1204")


THROTTLED = """[gn05] rank 0/32 | iter 4100 | loss 2.871 | step 1.121 s | fwd 0.402 bwd 0.611 opt 0.021 comm 0.087
[gn05] rank 0/32 | iter 4200 | loss 2.866 | step 1.119 s | fwd 0.401 bwd 0.610 opt 0.021 comm 0.087
$ clush -w gn[05-08] 'grep -h "iter 4500" /scratch/job91/rank*.log'
gn05: [gn05] rank 3/32 | iter 4500 | loss 2.851 | step 1.115 s | fwd 0.401 bwd 0.611 opt 0.021 comm 0.082
gn08: [gn08] rank 24/32 | iter 4500 | loss 2.851 | step 1.115 s | fwd 0.402 bwd 0.611 opt 0.021 comm 0.081
$ clush -bw gn[05-08] 'nvidia-smi --query-gpu=index,temperature.gpu,clocks.sm --format=csv,noheader'
---------------
gn07
---------------
3, 92, 570 MHz
"""


def test_the_last_sign_of_life_of_an_open_verdict_accuses_nobody() -> None:
    found = told(THROTTLED)
    assert (found.outcome, found.suspects.ranks, found.suspects.nodes) == ("inconclusive", [], [])
    assert place(found) == (None, None)


WORKERS = """$ tail -n 3 /share/logs/job7731/*/worker_*.log
==> /share/logs/job7731/gn-06/worker_0.log <==
[ERROR] 2025-10-11-15:39:34 (PID:2969, Device:0, RankID:0) ERR00100 PTA call acl api failed.
EI0002: [PID: 2969] The wait execution of the Notify register times out. Reason: The Notify register has not received the Notify record from remote rank: [11].

==> /share/logs/job7731/gn-07/worker_3.log <==
RuntimeError: npuSynchronizeDevice: NPU function error: HBM MULTI BIT ECC ERROR, error code is 507054
{own}
"""


def test_a_file_that_counts_local_ranks_is_of_the_rank_that_its_process_calls_itself() -> None:
    own = "[ERROR] 2025-10-11-15:09:02 (PID:8117, Device:3, RankID:11) ERR00100 PTA call acl api failed"
    assert place(told(WORKERS.format(own=own)))[0] == 11
    two = f"{own}\n{own.replace('8117', '8118').replace('RankID:11', 'RankID:12')}"
    assert place(told(WORKERS.format(own=two)))[0] == 3
