"""Hosts that a log names beside a fault, and which of them the fault was on."""

from __future__ import annotations

import pytest

from rerail.assistant.pipeline import diagnose_texts

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB."
TIMED_OUT = (
    "{0}: [rank{0}]:[E912 08:15:40.096137 ProcessGroupNCCL.cpp:632] [Rank {0}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=8821, OpType=ALLREDUCE, NumelIn=25557032, NumelOut=25557032, Timeout(ms)=600000) ran for "
    "600012 milliseconds before timing out."
)


def place(text: str) -> tuple[int | None, str | None]:
    """Rank and node of the first fault."""
    fault = diagnose_texts({"job.log": text}).diagnosis.first_fault
    return (None, None) if fault is None else (fault.rank, fault.node)


def test_the_daemon_that_ends_a_step_for_a_lost_node_is_on_another() -> None:
    text = (
        "step 10 loss 2.0\nslurmstepd: error: *** STEP 9.0 ON mi-101 CANCELLED AT 2025-12-04T06:26:41 DUE TO NODE "
        "FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***\n"
    )
    assert place(text)[1] is None
    lost = "[2025-12-04T06:26:40.903] Killing JobId=9 on failed node mi-103\n"
    assert place(text + lost)[1] == "mi-103"


def test_who_is_killed_when_the_step_ends_is_not_why_the_others_waited() -> None:
    lines = [f"{rank}: step 10 loss 2.0" for rank in range(4)]
    lines += [TIMED_OUT.format(rank) for rank in (0, 1, 3)]
    lines += [
        "srun: error: s40: tasks 0-1: Aborted (core dumped)",
        "srun: error: s41: task 3: Aborted (core dumped)",
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
        "srun: error: s41: task 2: Killed",
    ]
    found = diagnose_texts({"job.log": "\n".join(lines)}).diagnosis
    assert found.failure_type == "nccl_timeout_unexplained"
    assert found.first_fault is not None
    assert (found.first_fault.rank, found.first_fault.node) == (2, "s41")


def test_a_host_is_called_as_its_scheduler_calls_it() -> None:
    table = (
        "Root Cause (first observed failure):\n[0]:\n  time      : 2025-04-17_22:40:07\n"
        "  host      : g0413.cluster.local\n  rank      : 6 (local_rank: 2)\n  exitcode  : 1 (pid: 190302)\n"
    )
    text = f"[rank6]: {OOM}\n{table}"
    assert place(text) == (6, "g0413.cluster.local")
    assert place(text + "srun: error: g0413: task 1: Exited with exit code 1\n") == (6, "g0413")


def test_the_ranks_of_a_host_begin_where_torchruns_table_lets_them() -> None:
    table = (
        "Root Cause (first observed failure):\n[0]:\n  time      : 2025-04-17_22:40:07\n  host      : hx-02\n"
        "  rank      : 12 (local_rank: 4)\n  exitcode  : -6 (pid: 190302)\n"
    )
    assert place(f"[rank9]: {OOM}\n{table}") == (9, "hx-02")
    assert place(f"[rank7]: {OOM}\n{table}") == (7, None)


def test_a_replica_is_the_task_of_its_number_where_each_node_has_one() -> None:
    text = f"train/0 [0]:[rank0]: step 1 loss 2.0\ntrain/3 [4]:[rank28]: {OOM}\n"
    tasks = "".join(f"srun: error: gn-{i}: task {i}: Exited with exit code 1\n" for i in (0, 3))
    assert place(text + tasks) == (28, "gn-3")


@pytest.mark.parametrize(
    "command",
    ["$ kubectl logs sft-7b-launcher-x2", "$ kubectl get mpijob bert-lr-5e-6 -o yaml"],
)
def test_the_name_of_a_job_or_pod_in_a_command_is_no_host(command: str) -> None:
    assert place(f"{command}\n[rank0]: step 1 loss 2.0\n[rank1]: {OOM}\n")[1] is None


def test_a_loop_over_hosts_heads_each_with_its_name() -> None:
    text = (
        "m1: [rank0]: step 1 loss 2.0\n== m1\n[1.0] mlx5_core 0000:18:00.0 ens1f0np0: Link up\n== m2\n"
        "[Sun Jul 28 14:20:07 2024] NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus.\n"
    )
    assert place(text)[1] == "m2"
    assert place(text.replace("== m1", "== epoch1").replace("== m2", "== epoch2"))[1] != "epoch2"


def test_the_rank_that_did_not_bring_the_unique_id_is_late() -> None:
    told = (
        "[rank{0}]: RuntimeError: [{0}] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d "
        "key-value store by key '0', but store->get('0') got error: Socket Timeout\n"
    )
    assert place("".join(told.format(rank) for rank in (1, 5, 9)))[0] == 0
