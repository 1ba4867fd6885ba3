"""A log to which a requeued job was added: what ended the attempt before does not end the last one."""

from __future__ import annotations

REQUEUE = "slurmstepd: error: *** JOB 33 ON gn-04 CANCELLED AT 2026-03-01T16:47:36 DUE TO JOB REQUEUE ***\n"
STEPS = "".join(f"step {step} loss 2.{step}\n" for step in range(1, 6))
RAISED = "Traceback (most recent call last):\n  File \"train.py\", line 88, in <module>\nKeyError: 'lr_sched'\n"
EXITS = "srun: Job step aborted: Waiting up to 5 seconds for job step to finish.\n"
ENDED = "starting again\nsrun: error: gn-04: task 0: Exited with exit code 1\n"


def test_the_requeue_belongs_to_the_attempt_that_it_ended(diagnose):
    found = diagnose(STEPS + REQUEUE + STEPS + RAISED)
    assert found.failure_type == "python_exception"


def test_a_job_that_was_requeued_last_was_preempted(diagnose):
    assert diagnose(STEPS + REQUEUE).failure_type == "job_preempted"
    assert diagnose(STEPS + EXITS + REQUEUE + ENDED).failure_type == "job_preempted"


def test_a_job_that_its_accounting_calls_failed_is_not_waiting_to_start_again(diagnose):
    files = {"job.out": EXITS + REQUEUE + ENDED, "sacct.txt": "33|train|FAILED|1:0|gn-04\n"}
    assert diagnose(files).failure_type == "process_exit_unexplained"
