"""What was told after a failure is its cause only where the taxonomy says that it can be."""

from __future__ import annotations

import pytest

OWN = (
    "2026-03-01 02:00:00 gpu-a [rank3]: Traceback (most recent call last):\n"
    '2026-03-01 02:00:00 gpu-a [rank3]:   File "/job/t.py", line 61, in main\n'
    "2026-03-01 02:00:00 gpu-a [rank3]: KeyError: 'warmup'\n"
)
ILLEGAL = OWN.replace(
    "KeyError: 'warmup'", "RuntimeError: CUDA error: an illegal memory access was encountered"
)
LIMIT = (
    "slurmstepd: error: *** JOB 4711 ON gpu-a CANCELLED AT 2026-03-01T02:00:00 DUE TO {why} ***\n"
)
OOM = "2026-03-01T02:00:00.000000+00:00 gpu-b kernel: Out of memory: Killed process 4711 (python) total-vm:900kB, anon-rss:480kB\n"
XID = "2026-03-01T02:0{at}.000000+00:00 gpu-b kernel: NVRM: Xid (PCI:0000:65:00): 79, pid=4711, name=python, GPU has fallen off the bus.\n"
LINK = "2026-03-01T02:0{at}.000000+00:00 gpu-b kernel: mlx5_core 0000:3b:00.0: Port: 1 Link DOWN\n"


@pytest.mark.parametrize(
    ("log", "kernel", "leaf"),
    [
        (OWN, XID, "python_exception"),
        (LIMIT.format(why="TIME LIMIT"), XID, "job_time_limit"),
        (LIMIT.format(why="PREEMPTION"), XID, "job_preempted"),
        (ILLEGAL, LINK, "cuda_illegal_memory_access"),
        (ILLEGAL, XID, "gpu_fallen_off_bus"),
    ],
)
def test_a_machine_that_breaks_a_minute_later_explains_what_it_can_cause(
    diagnose, log, kernel, leaf
):
    found = diagnose({"train.log": log, "kern.log": kernel.format(at="1:00")})
    assert found.failure_type == leaf


def test_a_link_that_goes_down_later_did_not_kill_a_process(diagnose):
    found = diagnose({"kern.log": OOM + LINK.format(at="1:00")})
    assert found.failure_type == "host_oom_kill"


def test_a_cause_that_is_told_after_its_effect_is_not_proven_by_the_clocks(diagnose):
    later = {"train.log": ILLEGAL, "kern.log": XID.format(at="1:00")}
    assert diagnose(later).status == "supported"
    at_once = {"train.log": ILLEGAL, "kern.log": XID.format(at="0:01")}
    assert diagnose(at_once).status == "established"


def test_the_rank_that_failed_by_itself_is_not_placed_on_the_broken_gpu(diagnose):
    before = XID.format(at="0:00").replace("02:00:00", "01:59:40")
    found = diagnose({"train.log": OWN.replace("gpu-a ", ""), "kern.log": before})
    assert (found.failure_type, found.first_fault.rank) == ("gpu_fallen_off_bus", None)


def test_a_line_without_a_stamp_is_not_as_old_as_the_stamp_above_it(diagnose):
    """The process that lost its GPU printed no time; its last stamped line is minutes older than the kernel's."""
    start = "2026-03-01 02:00:00 gpu-a [rank4]: training starts\n"
    lost = "gpu-a [rank4]: RuntimeError: level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)\n"
    hang = "2026-03-01T02:07:00.000000+00:00 gpu-a kernel: i915 0000:cf:00.0: [drm] GPU HANG: ecode 12:10:84dffffb, in python [91203]\n"
    found = diagnose({"train.log": start + lost, "kern.log": hang})
    assert found.first_fault.rule == "i915-gpu-hang"


def test_what_peers_tell_of_a_process_that_crashed_before_is_no_cause_of_the_crash(diagnose):
    crash = "[default3]:Fatal Python error: Segmentation fault\n"
    told = (
        "gn-31:74:1320 [3] process_completions:1120 NCCL WARN NET/OFI Request 0x7f2b completed with error. RC: 113. "
        "Error: 4119 (unresponsive receiver). Completed length: 0\n"
    )
    assert diagnose(crash + told).failure_type == "process_segfault"
    assert diagnose(told + crash).failure_type == "efa_libfabric_error"
