"""What anybody can print does not displace how the program failed; a machine that failed is still named."""

import pytest

STEPS = "".join(
    f"2026-03-01 03:00:{s:02d} [rank0]: step {s} loss {9 / s:.3f}\n" for s in range(1, 12)
)
OWN = (
    "[rank1]: Traceback (most recent call last):\n"
    '[rank1]:   File "/job/t.py", line 9, in <module>\n'
    "[rank1]: AttributeError: 'NoneType' object has no attribute 'shape'\n"
)
ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
ECC_RAISED = (
    "[rank0]: Traceback (most recent call last):\n"
    '[rank0]:   File "/job/t.py", line 7, in step\n'
    f"[rank0]: {ECC}"
)
ECC_THROWN = "terminate called after throwing an instance of 'c10::Error'\n  what():  CUDA error: uncorrectable ECC error encountered\n"
ECC_WATCHDOG = (
    "[rank1]:[E301 03:00:11.900 ProcessGroupNCCL.cpp:1895] [PG ID 0 PG GUID 0(default_pg) Rank 1] Process group watchdog "
    "thread terminated with exception: CUDA error: uncorrectable ECC error encountered\n"
)
XID = "[Sun Mar  1 03:00:{s} 2026] n7 kernel: NVRM: Xid (PCI:0000:1b:00): 48, pid=1, name=python, DBE (double bit error)\n"
UPTIME = "[  812.1234] NVRM: Xid (PCI:0000:1b:00): 48, pid=1, name=python, DBE (double bit error)\n"
WAITED = "".join(
    f"[rank{r}]:[E301 03:10:31.{r}00 ProcessGroupNCCL.cpp:633] [Rank {r}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=92, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600011 milliseconds "
    "before timing out.\n"
    for r in (0, 1)
)
LAUNCH = (
    "[rank0]: Traceback (most recent call last):\n"
    '[rank0]:   File "/job/t.py", line 7, in step\n'
    "[rank0]: RuntimeError: CUDA error: unspecified launch failure\n"
)


@pytest.mark.parametrize(
    "behind",
    [
        f"n7: {ECC}",
        "".join(f"[rank{r}]: {ECC}" for r in range(2)),
        ECC_RAISED,
        ECC_THROWN,
        XID.format(s=12),
    ],
)
def test_no_machine_raises_an_attribute_error(diagnose, behind):
    found = diagnose(STEPS + OWN + behind)
    assert (found.failure_type, found.suspects.nodes) == ("python_exception", [])
    assert any(r.failure_type == "gpu_ecc_uncorrectable" for r in found.ruled_out)


def test_a_sentence_before_it_needs_a_trace_in_the_job(diagnose):
    assert diagnose(STEPS + f"[rank0]: {ECC}" + OWN).failure_type == "python_exception"
    assert diagnose(STEPS + XID.format(s=11) + OWN).failure_type == "python_exception"


def test_a_sentence_does_not_explain_a_hang_that_was_over(diagnose):
    assert diagnose(STEPS + WAITED + f"[rank0]: {ECC}").failure_type == "nccl_timeout_unexplained"


@pytest.mark.parametrize(
    "log",
    [
        STEPS + f"[rank0]: {ECC}",
        STEPS + ECC_RAISED,
        STEPS + ECC_THROWN,
        STEPS + ECC_RAISED + OWN,
        STEPS + ECC_THROWN + OWN,
        STEPS + ECC_WATCHDOG + OWN,
        STEPS + XID.format(s=11) + LAUNCH + OWN,
        STEPS + f"[rank0]: {ECC}" + WAITED,
        STEPS + WAITED + ECC_RAISED,
        STEPS + LAUNCH + OWN + "--- dmesg ---\n" + UPTIME,
    ],
)
def test_a_broken_machine_is_still_named(diagnose, log):
    assert diagnose(log).failure_type == "gpu_ecc_uncorrectable"


def test_a_kernel_log_of_its_own_is_believed_and_established_where_the_job_shows_a_trace(diagnose):
    kernel = {"dmesg-n7.log": XID.format(s=11)}
    found = diagnose({"train.log": STEPS + OWN, **kernel})
    assert (found.failure_type, found.suspects.nodes) == ("gpu_ecc_uncorrectable", ["n7"])
    assert found.status == "supported"
    assert diagnose({"train.log": STEPS + LAUNCH + OWN, **kernel}).status == "established"
    assert diagnose({"train.log": STEPS, **kernel}).status == "established"
    # A step minutes later: nothing in its own output tells that the fault reached it.
    later = "2026-03-01 03:05:00 [rank0]: step 12 loss 0.750\n"
    assert diagnose({"train.log": STEPS + later, **kernel}).status == "supported"


def test_a_claim_behind_the_end_is_not_established(diagnose):
    assert diagnose(STEPS + WAITED + ECC_RAISED).status == "supported"
    assert diagnose(STEPS + ECC_RAISED).status == "established"


def test_an_exit_that_training_outlived_accuses_nobody(diagnose):
    odd = "srun: error: n9: task 1: Out Of Memory\n"
    disk = OWN.replace(
        "AttributeError: 'NoneType' object has no attribute 'shape'",
        "OSError: [Errno 28] No space left on device: '/c/s.pt'",
    )
    assert diagnose(odd + STEPS + disk).suspects.nodes == []
    assert diagnose(STEPS + disk + odd).suspects.nodes == ["n9"]
