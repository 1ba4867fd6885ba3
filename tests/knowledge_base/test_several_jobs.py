"""Files of two jobs are told apart in words, and nothing is established from both."""

from __future__ import annotations

from rerail.assistant.pipeline import diagnose_texts
from rerail.domain.diagnosis import Status

OOM = "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
DISK = "[rank0]: OSError: [Errno 28] No space left on device: '/tmp/x'\n"


def test_two_jobs_are_told_and_establish_nothing() -> None:
    found = diagnose_texts({"slurm-4711.out": OOM, "slurm-4712.out": DISK}).diagnosis
    assert found.status is Status.SUPPORTED
    assert found.missing[0].what == "which job is meant: the files are of 2 (4711, 4712)"


def test_two_sections_of_one_file_may_be_of_two_jobs() -> None:
    text = f"##### /logs/881203_vit.out #####\n{OOM}##### /logs/881198_asr.out #####\nstep 4012 loss 0.40\n"
    found = diagnose_texts({"pasted.txt": text}).diagnosis
    assert any("881198, 881203" in one.what for one in found.missing)


def test_tasks_and_attempts_of_one_job_are_one_job() -> None:
    files = {
        "slurm-4711_1.out": OOM,
        "slurm-4711_2.out": "step 1 loss 2\n",
        "slurm-4711.err": "x\n",
    }
    found = diagnose_texts(files).diagnosis
    assert found.status is Status.ESTABLISHED
    assert not any("which job" in one.what for one in found.missing)
