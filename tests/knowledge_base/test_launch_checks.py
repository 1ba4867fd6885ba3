"""Nodes that launchers know of before training: who did not join, who failed DLRover's check, whom JAX lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rerail.domain.diagnosis import Diagnosis

Run = Callable[[str | dict[str, str]], Diagnosis]

STARTED = "SLURM_JOB_NODELIST=c[11-14]\n" + "".join(
    f"{task}: c{11 + task}: starting the agent of node {task}\n" for task in range(3)
)
STORE = "0: torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. {n}/4 clients joined.\n"


def place(found: Diagnosis) -> tuple[int | None, str | None]:
    assert found.first_fault is not None
    return found.first_fault.rank, found.first_fault.node


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (STARTED + STORE.format(n=3), (None, "c14")),
        # Two more were waited for, so that the silent one is not the only one; who waits is not at fault.
        (STARTED + STORE.format(n=2), (None, None)),
        # All of them wrote.
        (STARTED + "3: c14: starting the agent of node 3\n" + STORE.format(n=3), (None, None)),
    ],
)
def test_the_node_that_did_not_join(
    diagnose: Run, text: str, where: tuple[int | None, str | None]
) -> None:
    found = diagnose(text)
    assert found.failure_type == "rendezvous_timeout"
    assert place(found) == where
    assert ("only c14 wrote nothing" in found.summary) == (where[1] == "c14")


@pytest.mark.parametrize(
    "text",
    [
        # The store's line says not whose it is.
        STARTED + STORE.format(n=3).removeprefix("0: "),
        # Another one may be of the node that seems silent.
        STARTED + "W0301 10:00:00.000 torch/distributed/run.py:793] starting\n" + STORE.format(n=3),
        STARTED + STORE.format(n=3) + "Tokenizing the corpus\n",
        # The task is of no node that is known.
        STARTED + STORE.format(n=3).replace("0: ", "3: ", 1),
    ],
)
def test_lines_without_a_label_may_be_of_the_silent_node(diagnose: Run, text: str) -> None:
    found = diagnose(text)
    assert found.failure_type == "rendezvous_timeout"
    assert place(found)[1] != "c14"


def test_dlrover_names_the_node_by_its_rank_in_the_check(diagnose: Run) -> None:
    joined = "".join(
        f"[INFO] [training.py:249:next_rendezvous] The node job-worker-{n} has joined round 0 of the network-check "
        f"rendezvous as rank {n} in a world of size 2.\n"
        for n in range(2)
    )
    fault = "RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
    told = "[INFO] [training.py:771:run] Fault nodes are: [{}]  and stragglers are: [].\n"
    assert place(diagnose(joined + told.format(1) + fault))[1] == "job-worker-1"
    # The check itself met the fault.
    assert place(diagnose(joined + fault + told.format(1)))[1] == "job-worker-1"
    for unproven in (
        told.format("0, 1") + fault,
        # The check was repeated, and all passed it.
        told.format(1) + told.format("") + fault,
        told.format(1) + told.format("0, 1") + fault,
        # Trained on since, so that the check found something else.
        told.format(1) + "step 1 loss 2.1\nstep 2 loss 2.0\n" + fault,
        # A check behind the fault that did not begin in front of it, or with training between.
        told.format("") + fault + told.format(1),
        "step 1 loss 2.1\nstep 2 loss 2.0\n" + fault + told.format(1),
        fault + told.format(""),
    ):
        assert place(diagnose(joined + unproven))[1] is None, unproven
    assert place(diagnose(joined + told.format("") + told.format(0) + fault))[1] == "job-worker-0"


def test_a_host_that_the_cloud_lost_ran_the_task_that_jax_lost(diagnose: Run) -> None:
    lost = (
        "w-0: E0827 19:54:18.568412 1170 coordination_service.cc:1170] /job:jax_worker/replica:0/task:{} has been set to "
        "ERROR in coordination service: UNAVAILABLE: Task /job:jax_worker/replica:0/task:{} heartbeat timeout.\n"
    )
    host = (
        "2026-08-27T19:52:31Z compute.instances.hostError Instance terminated by Compute Engine.\n"
    )
    assert place(diagnose(host + lost.format(5, 5)))[0] == 5
    assert place(diagnose(host + lost.format(5, 5) + lost.format(6, 6)))[0] is None


def test_a_slow_rank_of_a_job_on_one_node_is_on_that_node(diagnose: Run) -> None:
    init = "n31:41:52 [0] NCCL INFO ncclCommInitRank comm 0x5 rank 0 nranks 2 cudaDev 0 busId 1000 - Init COMPLETE\n"
    busy = "[rank1]: Tokenizing (num_proc=1):   4%|4         | 31/780 [28:11<11:20:44, 1.1 examples/s]\n"
    timeout = (
        "[rank0]:[E1119 13:21:12.5 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=1, OpType=BROADCAST, NumelIn=1, NumelOut=1, Timeout(ms)=1800000) ran for 1800000 milliseconds "
        "before timing out.\n"
    )
    found = diagnose(init + busy * 2 + timeout)
    assert (found.failure_type, place(found)) == ("nccl_slow_rank_timeout", (1, None))
    found = diagnose("torchrun --nnodes=1 --nproc_per_node=2\n" + init + busy * 2 + timeout)
    assert place(found) == (1, "n31")


def test_a_process_that_could_not_start_is_not_the_one_killed_on_another_host(
    diagnose: Run,
) -> None:
    proxy = (
        "[proxy:0:1@n2] HYDU_create_process (utils/launch/launch.c:74): "
        "execvp error on file ./train (No such file or directory)\n"
    )
    killed = (
        "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   RANK 0 PID 51 RUNNING AT n1\n"
        "=   KILLED BY SIGNAL: 9 (Killed)\n"
    )
    found = diagnose(proxy + killed)
    assert found.failure_type == "scheduler_launch_failure"
    assert place(found) == (None, "n2")


def test_who_ended_before_anybody_lost_a_peer_ended_first(diagnose: Run) -> None:
    fault = "Error: no files found matching the pattern: /local/train_*.bin\n"
    lost = "[0] NCCL error in file llmc/zero.cuh at line 84: remote process exited or there was a network error\n"
    ended = "srun: error: q{}: tasks {}: Exited with exit code 1\n"
    assert (
        place(diagnose(fault + ended.format(8, "2-3") + lost + ended.format(7, "0-1")))[1] == "q8"
    )
    assert (
        place(diagnose(fault + lost + ended.format(8, "2-3") + ended.format(7, "0-1")))[1] is None
    )
