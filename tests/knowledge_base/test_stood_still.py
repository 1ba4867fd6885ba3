"""A run whose log stopped long before somebody asked for the time hangs; one that was looked at at once does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rerail.domain.diagnosis import Diagnosis, Outcome, Status

Run = Callable[[str | dict[str, str]], Diagnosis]

STEPS = "".join(
    f"2026-03-01 10:{minute:02d}:00,000 trainer INFO: iter: {20 * minute} loss: 0.6{minute:02d} time: 2.9\n"
    for minute in range(10)
)
ASKED = "ops@gn-1:~$ tail -10 log.txt; date\n{steps}Sun Mar  1 {at} UTC 2026\n"
REPORT = """ops@gn-1:~$ ncclras -v
Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      4          8            1         32       32

Communicators... (0.01s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4         8        32        32   RUNNING  MISMATCH

Warnings
========

#0-0 (7c1e20b9a44d5f03) MISMATCH
  Communicator ranks have different AllGather operation counts
  31 ranks have launched up to operation 703417
  1 ranks have launched up to operation 703416
  Rank 21 -- GPU 5 managed by process 214 on node gn-3
"""
STACK = """[root@gn-1 ~]# py-spy dump --pid 36380
Process 36380: /usr/bin/python -u pretrain_gpt.py --async-save
Thread 36380 (idle): "MainThread"
    poll (multiprocessing/popen_fork.py:27)
    is_current_async_call_done (core/dist_checkpointing/strategies/async_utils.py:236)
    save (core/dist_checkpointing/serialization.py:396)
[root@gn-1 ~]# tr '\\0' '\\n' < /proc/36380/environ | grep -E '^(RANK|LOCAL_RANK)='
RANK=3
LOCAL_RANK=3
"""


def asked(at: str, more: str = "") -> str:
    return ASKED.format(steps=STEPS, at=at) + more


def test_a_log_that_stopped_hours_ago_is_no_healthy_run(diagnose: Run) -> None:
    found = diagnose(asked("14:30:00"))
    assert found.outcome is Outcome.FAILURE
    assert (found.failure_type, found.status) == ("nccl_timeout_unexplained", Status.HYPOTHESIS)
    assert "nothing more was printed for 261 minutes" in found.summary
    assert "timed out" not in found.summary


@pytest.mark.parametrize("at", ["10:09:30", "10:18:00"])
def test_a_log_that_was_just_written_is_one(diagnose: Run, at: str) -> None:
    assert diagnose(asked(at)).outcome is Outcome.NO_FAILURE


def test_nothing_is_concluded_where_nobody_asked_for_the_time(diagnose: Run) -> None:
    told = STEPS + "Sun Mar  1 14:30:00 UTC 2026\n"
    assert diagnose(told).outcome is Outcome.NO_FAILURE


def test_one_report_of_nccl_is_enough_for_a_job_that_stands_still(diagnose: Run) -> None:
    still, moving = diagnose(asked("14:30:00", REPORT)), diagnose(asked("10:09:30", REPORT))
    assert (still.suspects.ranks, still.outcome) == ([21], Outcome.FAILURE)
    assert moving.outcome is Outcome.INCONCLUSIVE


def test_a_stack_in_the_save_of_a_checkpoint_tells_why(diagnose: Run) -> None:
    found = diagnose(asked("14:30:00", STACK))
    assert (found.failure_type, found.suspects.ranks) == ("checkpoint_save_failure", [3])


def _line(second: int, text: str) -> str:
    return f"2026-03-04 {1 + second // 3600:02}:{second // 60 % 60:02}:{second % 60:02} {text}\n"


def test_lines_that_go_on_without_steps_are_no_healthy_end(diagnose):
    steps = "".join(
        _line(2 * step, f"INFO train: step {step} loss {3 - step / 1000:.4f}")
        for step in range(1, 200)
    )
    beats = "".join(_line(400 + 60 * beat, "DEBUG heartbeat: monitor alive") for beat in range(100))
    found = diagnose(steps + beats)
    assert found.outcome == "inconclusive"
    assert "none in the last 99 minutes" in found.summary
    few = diagnose(steps + "".join(beats.splitlines(keepends=True)[:5]))
    assert few.outcome == "no_failure"


def test_a_wait_that_training_outlived_by_far_is_no_consequence_of_a_later_fault(diagnose):
    def steps(first: int, last: int) -> str:
        return "".join(
            _line(60 * step, f"[rank0] INFO train: step {step} loss 2.5")
            for step in range(first, last)
        )

    waited = _line(
        3610,
        "[rank5] [Rank 5] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, "
        "OpType=ALLREDUCE, NumelIn=2, NumelOut=2, Timeout(ms)=600000) ran for 600012 milliseconds before timing out.",
    )
    memory = _line(
        7210, "[rank3] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    )
    found = diagnose(steps(1, 60) + waited + steps(61, 120) + memory)
    assert found.failure_type == "cuda_oom"
    assert not found.consequences and found.cost.idle_gpu_hours is None
    near = diagnose(steps(1, 60) + waited + memory.replace("03:00:10", "02:00:20"))
    assert near.consequences
