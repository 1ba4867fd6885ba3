"""Hosts and processes that were lost, told from those that are gone because they waited for them in vain."""

from __future__ import annotations

import pytest

from rerail.assistant.pipeline import diagnose_texts

STEPS = "".join(
    f"[{rank}] 2026-03-02 10:00:0{step},100 INFO step {step} read\n"
    for step in range(1, 5)
    for rank in range(6)
)
UP = "".join(
    f"[{rank}] 2026-03-02 10:00:00,000 INFO started on bx{1 + rank // 2} pid {50 + rank}\n"
    for rank in range(6)
)
LIMIT = "I_MPI_JOB_TIMEOUT = 40 second(s): job ending due to application timeout\n"
PROXY = "[mpiexec@bx1] wait_proxies_to_terminate (../mpiexec/i_mpiexec.c:9): downstream from host {} exited with status {}\n"


def verdict(files):
    return diagnose_texts(files).diagnosis


def test_mpiexec_lost_the_host_whose_ssh_ended_with_its_own_code():
    found = verdict({"mpi.log": UP + STEPS + PROXY.format("bx2", 255) + LIMIT})
    assert (found.failure_type, found.suspects.nodes) == ("node_crash", ["bx2"])


@pytest.mark.parametrize("code", [1, 9])
def test_another_code_is_that_of_the_command(code):
    found = verdict({"mpi.log": UP + STEPS + PROXY.format("bx2", code) + LIMIT})
    assert found.failure_type == "job_time_limit"


def test_the_limit_of_mpiexec_names_who_stopped_first():
    last = "".join(
        f"[{rank}] 2026-03-02 10:00:05,100 INFO step 5 read\n" for rank in range(6) if rank != 4
    )
    found = verdict({"mpi.log": UP + STEPS + last + LIMIT})
    assert (found.failure_type, found.suspects.ranks) == ("job_time_limit", [4])


MS = "[ERROR] DISTRIBUTED({0},7f,python):2026-03-02-10:00:{1}.100.000 [mindspore/ccsrc/cluster/"
FAILED = (
    MS
    + "rpc/core/collective_ops_impl.cc:294] ReduceBroadcastAllReduce] Broadcast wait receiving [const pair] failed.\n"
)
LOST = (
    MS
    + "topology/meta_server_node.cc:548] UpdateTopoState] The node: {2} is timed out. It may exit with exception.\n"
)
LIST = "RuntimeError: The total number of timed out node is 1. Timed out node list is: [const vector]{{{0}}}, worker {0} is the first one\n"


def jobs(*gave_up, lost):
    files = {
        f"bx-{1 + rank // 2}/worker_{rank}.log": f"rank {rank} of 4 on bx-{1 + rank // 2}, pid {rank + 70}\n"
        + (FAILED.format(rank + 70, 30) if rank in gave_up else "")
        for rank in range(4)
    }
    files["bx-1/scheduler.log"] = LOST.format(60, 41, lost) + LIST.format(lost)
    return files


def test_who_waited_in_vain_is_not_accused_for_being_gone_behind_that():
    found = verdict(jobs(0, 1, 2, lost=1))
    assert (found.suspects.ranks, found.suspects.nodes) == ([3], ["bx-2"])


def test_the_host_of_a_process_that_is_gone_is_lost_where_nothing_of_it_was_heard():
    found = verdict(jobs(0, 1, lost=3))
    assert (found.failure_type, found.suspects.ranks) == ("node_crash", [2, 3])
    assert found.suspects.nodes == ["bx-2"]


def tf(rank, *lines):
    return {
        f"worker-{rank}.log": f"INFO:fit:worker {rank} on bx-{1 + rank // 2}, pid {rank + 70}\n"
        + "".join(lines)
    }


GAVE_UP = "E0000 00:00:1795798685.59{0}    40 executor.cc:252] StartAbort DEADLINE_EXCEEDED: Collective has timed out during execution.\n"
GONE = (
    "E0000 00:00:1795798693.1    41 executor.cc:252] StartAbort UNAVAILABLE: Failed to send RPC to coordination service.\n"
    "Additional GRPC error information from remote target /job:worker/replica:0/task:0 while calling Heartbeat:\n"
    ':UNKNOWN:Error received from peer  {grpc_message:"failed to connect to all addresses", grpc_status:14}\n'
)


def test_a_peer_that_is_lost_long_behind_the_time_outs_of_others_was_ended_by_them():
    files = (
        tf(0, GAVE_UP.format(0)) | tf(1, GAVE_UP.format(1)) | tf(2, GAVE_UP.format(2)) | tf(3, GONE)
    )
    found = verdict(files)
    assert (found.failure_type, found.suspects.ranks) == ("nccl_timeout_unexplained", [3])
    assert found.suspects.nodes == ["bx-2"]
