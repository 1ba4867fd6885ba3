"""A sentence of success does not clear a fault that ended training; a run that went on does."""

import pytest

STEPS = "".join(f"[rank0]: step {s} loss {9 / s:.3f}\n" for s in range(1, 12))
FATAL = (
    "[rank0]: Traceback (most recent call last):\n"
    '[rank0]:   File "/job/t.py", line 9, in <module>\n'
    "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
)
MORE = "".join(f"[rank0]: step {s} loss {9 / s:.3f}\n" for s in range(12, 22))


def test_a_sentence_behind_a_fatal_fault_is_not_believed(diagnose):
    found = diagnose(STEPS + FATAL + "Training completed.\n")
    assert (found.outcome, found.failure_type) == ("failure", "cuda_oom")


@pytest.mark.parametrize(
    "log",
    [
        STEPS + FATAL + MORE + "Training completed.\n",
        FATAL + STEPS + "Training completed.\n",
        STEPS
        + FATAL
        + ':::MLLOG {"event_type": "INTERVAL_END", "key": "run_stop", "value": null, "metadata": {"status": "success"}}\n',
        STEPS + "Training completed.\n",
    ],
)
def test_what_training_went_on_after_or_the_benchmark_records_is_believed(diagnose, log):
    assert diagnose(log).outcome == "no_failure"


@pytest.mark.parametrize(
    ("rest", "outcome"), [(MORE + "Training completed.\n", "no_failure"), ("", "failure")]
)
def test_of_a_run_that_was_added_to_the_log_of_another_its_own_steps_count(diagnose, rest, outcome):
    assert (
        diagnose(STEPS + MORE + "Training completed.\n" + STEPS + FATAL + rest).outcome == outcome
    )


TIMED_OUT = "".join(
    f"[rank{r}]:[E301 03:10:31.{r}00 ProcessGroupNCCL.cpp:633] [Rank {r}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=92, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600011 "
    "milliseconds before timing out.\n"
    for r in (0, 1, 3)
)


def test_a_sentence_behind_collectives_that_timed_out_is_not_believed(diagnose):
    assert diagnose(STEPS + TIMED_OUT + "Training completed.\n").outcome == "failure"
    assert diagnose(STEPS + TIMED_OUT + MORE + "Training completed.\n").outcome == "no_failure"
    assert diagnose(STEPS + "Training completed.\n" + TIMED_OUT).outcome == "no_failure"


MISSED = ':::MLL 1561494010.268 run_stop: {"value": null, "metadata": {"status": "aborted"}}\n'
MET = ':::MLL 1561494010.268 run_stop: {"value": null, "metadata": {"status": "success"}}\n'


def test_a_run_that_records_a_missed_target_is_not_cleared_by_a_sentence(diagnose):
    for log in (
        STEPS + MISSED + "| done training in 1168.7 seconds\n",
        STEPS + "| done training in 1168.7 seconds\n" + MISSED,
    ):
        found = diagnose(log.replace(":::MLL", "0: :::MLL"))
        # Rank 0 logs for all of them: it is no culprit.
        assert (found.failure_type, found.suspects.ranks) == ("target_not_reached", [])
    assert diagnose(STEPS + MISSED + MORE + MET).outcome == "no_failure"


def test_a_run_stop_without_a_status_is_an_end_unless_another_says_that_it_failed(diagnose):
    start = ':::MLLOG {"key": "run_start", "value": null, "metadata": {}}\n'
    bare = ':::MLLOG {"key": "run_stop", "value": null, "metadata": {"lineno": 671}}\n'
    assert diagnose(start).outcome == "inconclusive"
    assert diagnose(start + bare).outcome == "no_failure"
    failed = ':::MLLOG {"key": "run_stop", "value": {"success": false}, "metadata": {}}\n'
    assert diagnose(start + failed + bare).failure_type == "target_not_reached"


def test_a_further_run_that_only_began_is_no_success(diagnose):
    begun = ':::MLL 1561494020.100 run_start: {"value": null, "metadata": {}}\n'
    late = ':::MLL 1561490000.100 run_start: {"value": null, "metadata": {}}\n'
    assert diagnose(MET + begun).outcome == "inconclusive"
    assert diagnose(MET + late).outcome == "no_failure"


def test_that_a_job_is_over_is_no_success_where_a_fault_was_the_last_that_happened(diagnose):
    step = "2026-03-04 01:00:00 INFO train: step 60/1000 loss 2.9\n"
    memory = "[rank3]: 2026-03-04 01:00:05 torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    over = "2026-03-04 01:01:05 INFO job ended\n"
    assert diagnose(step + memory + over).failure_type == "cuda_oom"
    assert diagnose(step + over).failure_type == "no_failure"
    later = "".join(
        f"2026-03-04 01:00:{second} INFO train: step {second + 60}/1000 loss 2.9\n"
        for second in range(10, 40)
    )
    assert diagnose(step + memory + later + over).failure_type == "no_failure"
