"""Scenarios of NCCL as far as one GPU goes: its watchdog, its start, its own checks."""

from __future__ import annotations

from rerail.evals.faultlab.scenarios import Scenario, Truth
from rerail.evals.faultlab.scenarios_gpu import BAD_ADDRESS, WELL
from rerail.evals.faultlab.scenarios_host import EXCLUDE
from rerail.evals.faultlab.scenarios_job import CODE, CONFIG, ONCE, TESTS

ONE_RANK = ("--standalone", "--nproc-per-node", "1")
FLIGHT_RECORDER = {
    "TORCH_FR_BUFFER_SIZE": "2000",
    "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
    "TORCH_FR_DUMP_TEMP_FILE": "{root}/logs/nccl_trace_rank_",
    "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "{root}/logs/nccl_trace_rank_",
}

SCENARIOS = (
    Scenario(
        "nccl_healthy",
        "healthy",
        "One rank trains over NCCL, which tells all that it does.",
        WELL,
        program="nccl_fit.py",
        torchrun=ONE_RANK,
        world=1,
        env={"NCCL_DEBUG": "INFO"},
        needs=("cuda",),
    ),
    Scenario(
        "nccl_no_farewell",
        "healthy",
        "Training completes, and the process group is not destroyed: torch warns.",
        WELL,
        program="nccl_fit.py",
        torchrun=ONE_RANK,
        world=1,
        script=("--stay-in-group",),
        needs=("cuda",),
    ),
    Scenario(
        "nccl_watchdog",
        "communication",
        "A kernel before an all-reduce never ends; the watchdog dumps, and the process hangs on.",
        Truth(
            "failure",
            "nccl_timeout_unexplained",
            None,
            ONCE,
            accept_leaves=("nccl_slow_rank_timeout",),
            accept_actions=(TESTS, CODE, EXCLUDE),
        ),
        program="nccl_fit.py",
        torchrun=ONE_RANK,
        world=1,
        prepare="kernels",
        script=("--library", "{root}/librows.so", "--kernel", "gather_rows", "--timeout", "10"),
        env=FLIGHT_RECORDER,
        kernel_log=True,
        needs=("cuda", "nvcc"),
        limit_s=40,
    ),
    Scenario(
        "nccl_bad_address",
        "gpu_kernel",
        "A kernel writes to a bad address; NCCL's watchdog sees it too and aborts.",
        Truth("failure", BAD_ADDRESS, None, CODE, accept_actions=(TESTS,)),
        program="nccl_fit.py",
        torchrun=ONE_RANK,
        world=1,
        prepare="kernels",
        script=("--library", "{root}/librows.so", "--kernel", "scale_rows"),
        kernel_log=True,
        needs=("cuda", "nvcc"),
    ),
    Scenario(
        "nccl_same_gpu_twice",
        "communication",
        "Two ranks use the same GPU.",
        Truth("failure", "nccl_duplicate_gpu", None, CONFIG, accept_actions=(CODE,)),
        program="nccl_fit.py",
        torchrun=("--standalone", "--nproc-per-node", "2"),
        world=2,
        needs=("cuda",),
    ),
    Scenario(
        "nccl_no_interface",
        "communication",
        "NCCL_SOCKET_IFNAME names an interface that is not there.",
        Truth("failure", "net_interface_misconfig", None, CONFIG),
        program="nccl_fit.py",
        torchrun=ONE_RANK,
        world=1,
        env={"NCCL_SOCKET_IFNAME": "ib9", "NCCL_DEBUG": "WARN"},
        needs=("cuda",),
    ),
    Scenario(
        "nccl_no_infiniband",
        "communication",
        "NCCL_NET=IB on a machine without InfiniBand.",
        Truth(
            "failure",
            "net_interface_misconfig",
            None,
            CONFIG,
            accept_leaves=(
                *("nic_hardware_failure", "ib_link_down", "config_error", "dist_env_misconfig"),
            ),
            accept_actions=(TESTS, EXCLUDE),
        ),
        program="nccl_fit.py",
        torchrun=ONE_RANK,
        world=1,
        env={"NCCL_NET": "IB", "NCCL_DEBUG": "WARN"},
        needs=("cuda",),
    ),
    Scenario(
        "nccl_host_tensor",
        "gpu_code",
        "A tensor on the host is reduced, but the group has only NCCL.",
        Truth("failure", "python_exception", None, CODE, accept_leaves=("tensor_mismatch",)),
        program="nccl_fit.py",
        torchrun=ONE_RANK,
        world=1,
        script=("--average-on-host",),
        needs=("cuda",),
    ),
)
