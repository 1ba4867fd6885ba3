"""Who kept the others waiting: who did not say what all others did, who says what all say, and local ranks."""

from __future__ import annotations

import pytest

from rerail.assistant.pipeline import diagnose_texts
from rerail.domain.diagnosis import Diagnosis

LIMIT = (
    "slurmstepd: error: *** JOB 77 ON gn-1 CANCELLED AT 2026-03-01T12:00:00 DUE TO TIME LIMIT ***"
)
GLOO = "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete"
OLD = (
    "[E ProcessGroupNCCL.cpp:566] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(OpType={op},"
    " Timeout(ms)=1800000) ran for 1801060 milliseconds before timing out."
)
LOCAL = (
    "[default{local}]:[E ProcessGroupNCCL.cpp:475] [Rank {rank}] Watchdog caught collective operation timeout:"
    " WorkNCCL(SeqNum=3, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600888 milliseconds before"
    " timing out."
)
BUSY = "[default0]:Grouping texts in chunks of 2049:  29%|##9 | 2804000/9672101 [09:38<23:31, 4866.14 examples/s]"
STALLED = (
    "[1,0]<stderr>:WARNING: One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and"
    " are waiting for remainder of ranks for more than 60 seconds. This may indicate that different ranks are trying to"
    " submit different tensors or that only subset of ranks is submitting tensors, which will cause deadlock. Stalled ops: "
)


def at(seconds: int) -> str:
    return f"2026-03-01 10:{seconds // 60:02d}:{seconds % 60:02d}"


def said(text: str, ranks: list[int], seconds: int) -> list[str]:
    return [f"[rank{rank}]: {at(seconds)} {text}" for rank in ranks]


def diagnosed(*lines: str) -> Diagnosis:
    return diagnose_texts({"a.log": "\n".join([*lines, ""])}).diagnosis


ALL = list(range(8))
SAVING = said("Saving checkpoint to gs://bkt/step-14000", ALL, 1)
SAVED = "Saved checkpoint for step 14000"


@pytest.mark.parametrize("end", [LIMIT, GLOO])
def test_who_did_not_say_what_all_others_did_is_named(end: str) -> None:
    found = diagnosed(*SAVING, *said(SAVED, [0, 1, 2, 3, 4, 5, 7], 70), end)
    assert found.suspects.ranks == [6]


def test_of_ranks_that_all_say_the_same_the_last_is_not_the_busy_one() -> None:
    found = diagnosed(*SAVING, *said(SAVED, ALL, 70), GLOO)
    assert not found.suspects.ranks
    assert found.first_fault is not None
    assert found.first_fault.rank is None


@pytest.mark.parametrize(
    ("first", "then", "who", "why"),
    [
        (
            "model built",
            "not the main process, logging is off",
            [1, 2, 3, 4, 5, 6, 7],
            "the first rank",
        ),
        ("stage ready", "sent activations", [0, 1, 2, 3, 4, 5, 6], "the last stage sends nothing"),
        ("shard list read", "own shards found", [0, 1, 2, 3, 4], "many did not"),
    ],
)
def test_another_part_in_the_job_is_no_fault(
    first: str, then: str, who: list[int], why: str
) -> None:
    found = diagnosed(*said(first, ALL, 1), *said(then, who, 2), LIMIT)
    assert not found.suspects.ranks, why


def test_who_never_says_what_the_others_repeat_has_another_part() -> None:
    lines = []
    for step in range(1, 5):
        lines += said(f"step {step} begins", ALL, step)
        lines += said(f"weights of step {step} received", [0, 1, 2, 4, 5, 6, 7], step)
    assert not diagnosed(*lines, LIMIT).suspects.ranks


@pytest.mark.parametrize(
    ("ops", "named"),
    [
        (["ALLREDUCE", *["BROADCAST"] * 7], [0]),
        (["ALLREDUCE"] * 2 + ["BROADCAST"] * 6, []),  # a stage of a pipeline
        (["ALLREDUCE", "BROADCAST", "BROADCAST"], []),
        (["ALLREDUCE", "BARRIER", *["BROADCAST"] * 6], []),
        (["SEND", *["BROADCAST"] * 7], []),
    ],
)
def test_the_one_rank_in_another_operation(ops: list[str], named: list[int]) -> None:
    found = diagnosed(*(OLD.format(rank=rank, op=op) for rank, op in enumerate(ops)))
    assert found.suspects.ranks == named
    assert found.failure_type == ("rank_divergence" if named else "nccl_timeout_unexplained")


@pytest.mark.parametrize(
    ("stalled", "leaf", "ranks"),
    [
        ("eval [ready ranks: 3], grad [ready ranks: 2, 0, 1]", "rank_divergence", [3]),
        ("a [ready ranks: 0, 1], b [ready ranks: 2, 3]", "rank_divergence", []),
        ("a [ready ranks: 0, 1, 2], b [ready ranks: 0, 1]", "nccl_timeout_unexplained", [3]),
    ],
)
def test_horovods_tensors_and_who_submitted_them(stalled: str, leaf: str, ranks: list[int]) -> None:
    found = diagnosed("[1,3]<stdout>: step 4", STALLED + stalled)
    assert (found.failure_type, found.suspects.ranks) == (leaf, ranks)


@pytest.mark.parametrize(
    ("waiting", "named"),
    [
        ([(1, 1), (2, 2), (3, 3)], [0]),
        ([(1, 1), (2, 2), (1, 9), (2, 10)], []),  # two nodes
        ([(1, 5), (2, 6), (3, 7)], []),  # which rank has local rank 0 is not told
        ([(1, 1)], [0]),  # nothing speaks of a second node
    ],
)
def test_a_local_rank_is_the_rank_where_those_beside_it_are(
    waiting: list[tuple[int, int]], named: list[int]
) -> None:
    found = diagnosed(BUSY, *(LOCAL.format(local=local, rank=rank) for local, rank in waiting))
    assert found.failure_type == "nccl_slow_rank_timeout"
    assert found.suspects.ranks == named


CHAIN = """Traceback (most recent call last):
  File "/opt/torch/utils/data/_utils/signal_handling.py", line 66, in handler
    _error_if_any_worker_fails()
RuntimeError: DataLoader worker (pid 108439) is killed by signal: Killed.

{between}

Traceback (most recent call last):
  File "/job/train.py", line 1919, in train
    trainer.train()
RuntimeError: DataLoader worker (pid(s) {pid}) exited unexpectedly
[2025-08-01 04:22:36,551] torch.distributed.elastic.multiprocessing.api: [ERROR] failed (exitcode: 1) local_rank: 5 (pid: 97815) of binary: /opt/python
Root Cause (first observed failure):
[0]:
  time      : 2025-08-01_04:22:31
  host      : pod-c2
  rank      : 5 (local_rank: 5)
  exitcode  : 1 (pid: 97815)
  error_file: <N/A>
"""


@pytest.mark.parametrize(
    ("between", "pid", "rank"),
    [
        ("The above exception was the direct cause of the following exception:", 108439, 5),
        ("INFO the other rank", 108512, None),  # two processes may have raised
    ],
)
def test_what_python_raised_from_an_exception_is_the_same_process(
    between: str, pid: int, rank: int | None
) -> None:
    found = diagnosed(CHAIN.format(between=between, pid=pid)).first_fault
    assert found is not None
    assert found.rank == rank


def test_a_name_that_was_found_in_the_end_is_no_failure() -> None:
    waits = ["** server can't find bert-master-0.ml: NXDOMAIN", "waiting for master"]
    steps = [
        "Name:   {}.ml",
        "Address: 10.0.223.142",
        "Train Epoch: 1 [58880/60000 (98%)]\tloss=0.2059",
    ]
    named = [line.format("bert-master-0") for line in steps]
    assert diagnosed(*waits, *named).outcome == "no_failure"
    other = [line.format("other-master-0") for line in steps]
    assert diagnosed(*waits, *other).failure_type == "dns_resolution_failure"
