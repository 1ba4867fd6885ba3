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
