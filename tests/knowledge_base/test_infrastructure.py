"""Infrastructure failures as the software words them: what each is called, and which node is named."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rerail.domain.diagnosis import Diagnosis, Outcome

Run = Callable[[str | dict[str, str]], Diagnosis]
STEPS = "".join(
    f"[2026-04-02 03:10:{i:02d}] iteration {100 + i}/ 9000 | lm loss: 2.{i}E+00 | "
    f"elapsed time per iteration (ms): 1200.{i} |\n"
    for i in range(20)
)

# (leaf, nodes or None where any will do, whether training had begun, lines)
CASES: list[tuple[str, list[str] | None, bool, list[str]]] = [
    (
        'nvlink_error', None, True,
        [
            "[Thu Apr  2 03:10:40 2026] NVRM: Xid (PCI:0000:4e:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 7(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
        ],
    ),
    (
        'gpu_ecc_uncorrectable', ['gpu-a17'], True,
        [
            'Apr  2 03:10:40 gpu-a17 kernel: [812345.12] NVRM: Xid (PCI:0000:8f:00): 48, pid=121212, name=python3, An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at partition 3, subpartition 1.',
        ],
    ),
    (
        'gpu_ecc_contained', ['gpu-a17'], True,
        [
            'Apr  2 03:10:40 gpu-a17 kernel: NVRM: Xid (PCI:0000:8f:00): 94, pid=121212, name=python3, Contained: SM (0x1). RST: No, D-RST: No',
            '[rank3]: RuntimeError: CUDA error: uncorrectable ECC error encountered',
        ],
    ),
    (
        'gpu_ecc_uncorrectable', None, True,
        [
            "kernel: NVRM: Xid (PCI:0000:8f:00): 95, pid='<unknown>', name=<unknown>, Uncontained: LTC TAG (0x3,0x0). RST: Yes, D-RST: No",
        ],
    ),
    (
        'gpu_row_remap', None, True,
        [
            "NVRM: Xid (PCI:0000:8f:00): 64, pid='<unknown>', name=<unknown>, Row Remapper: Failed to write to InfoROM",
        ],
    ),
    (
        'ib_retry_exceeded', None, True,
        [
            '[1,3]<stderr>: mlx5: gpu-a17: got completion with error:',
            '00000000 00000000 00000000 00000000',
            'nccl: gpu-a17:4121:4190 [3] transport/net_ib.cc:2078 NCCL WARN NET/IB : Got completion from peer 10.4.7.8<41234> with status=12 opcode=0 len=0 vendor err 129 (Send) localGid fe80:: remoteGids fe80:: hca mlx5_3',
        ],
    ),
    (
        'ib_link_down', ['gpu-a17'], True,
        [
            'Apr  2 03:10:40 gpu-a17 kernel: mlx5_core 0000:5e:00.0: Port module event: module 0, Cable unplugged',
            'Apr  2 03:10:41 gpu-a17 kernel: mlx5_core 0000:5e:00.0 ibs3: Link down',
        ],
    ),
    (
        'efa_libfabric_error', None, True,
        [
            'Libfabric: NET/OFI Request 0x7f completed with error. RC: 4. Error: 4 (unreachable remote)',
            'NCCL WARN NET/OFI Request completed with error. RC: 14. Error: unresponsive receiver',
        ],
    ),
    (
        'shared_fs_error', None, True,
        [
            'Apr  2 03:10:40 gpu-a17 kernel: nfs: server stor-01 not responding, still trying',
            "[rank0]: OSError: [Errno 5] Input/output error: '/nfs/ckpt/step_1000'",
        ],
    ),
    (
        'shared_fs_error', None, True,
        [
            'Apr  2 03:10:40 gpu-a17 kernel: LustreError: 11-0: scratch-OST0012-osc-ffff: operation ost_write to node 10.0.0.12@o2ib failed: rc = -107',
            'Apr 2 03:10:41 gpu-a17 kernel: Lustre: scratch-OST0012-osc: Connection to scratch-OST0012 (at 10.0.0.12@o2ib) was lost; in progress operations using this service will wait for recovery to complete',
            '[rank0]: OSError: [Errno 108] Cannot send after transport endpoint shutdown',
        ],
    ),
    (
        'shared_fs_error', None, True,
        [
            'mmfs: [E] The current file system is being unmounted: gpfs0 due to stale handle',
            "[rank7]: OSError: [Errno 116] Stale file handle: '/gpfs/data/shard_0012.bin'",
        ],
    ),
    (
        'disk_full_or_quota', None, True,
        [
            '[rank0]: OSError: [Errno 122] Disk quota exceeded',
        ],
    ),
    (
        'object_store_error', None, True,
        [
            '[rank0]: botocore.exceptions.EndpointConnectionError: Could not connect to the endpoint URL: "https://s3.local/bucket/shard-0001.tar"',
        ],
    ),
    (
        'object_store_error', None, True,
        [
            '[rank2]: botocore.exceptions.ClientError: An error occurred (SlowDown) when calling the GetObject operation (reached max retries: 4): Please reduce your request rate.',
        ],
    ),
    (
        'cgroup_oom_kill', None, True,
        [
            '[812345.1] Memory cgroup out of memory: Killed process 44121 (python3) total-vm:912345kB, anon-rss:812345kB, file-rss:0kB, shmem-rss:0kB, UID:1000 pgtables:0kB oom_score_adj:984',
        ],
    ),
    (
        'k8s_pod_evicted', None, True,
        [
            'Warning  Evicted  2m  kubelet  The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi, available: 3Gi.',
        ],
    ),
    (
        'cgroup_oom_kill', None, True,
        [
            '    State:          Terminated',
            '      Reason:       OOMKilled',
            '      Exit Code:    137',
        ],
    ),
    (
        'node_fail_scheduler', None, True,
        [
            'Normal  NodeNotReady  pod/trainer-3  Node is not ready',
            'TaintManagerEviction  Marking for deletion Pod ml/trainer-3',
        ],
    ),
    (
        'job_preempted', [], True,
        [
            'slurmstepd: error: *** JOB 812 ON gpu-a17 CANCELLED AT 2026-04-02T03:10:40 DUE TO PREEMPTION ***',
        ],
    ),
    (
        'job_time_limit', [], True,
        [
            'slurmstepd: error: *** STEP 812.0 ON gpu-a17 CANCELLED AT 2026-04-02T03:10:40 DUE TO TIME LIMIT ***',
        ],
    ),
    (
        'node_fail_scheduler', ['gpu-a17'], True,
        [
            'srun: error: Node failure on gpu-a17',
            'slurmstepd: error: *** JOB 812 ON gpu-a16 CANCELLED AT 2026-04-02T03:10:40 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***',
        ],
    ),
    (
        'job_preempted', None, True,
        [
            '{"action": "terminate", "time": "2026-04-02T03:12:40Z"}',
            'Received EC2 Spot Instance interruption notice, saving checkpoint',
        ],
    ),
    (
        'nvml_driver_mismatch', None, False,
        [
            'Failed to initialize NVML: Driver/library version mismatch',
            'NVML library version: 550.54',
            'RuntimeError: No CUDA GPUs are available',
        ],
    ),
    (
        'cuda_driver_or_arch_mismatch', None, False,
        [
            'RuntimeError: The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver',
        ],
    ),
    (
        'fabric_manager_failure', None, False,
        [
            'RuntimeError: CUDA error: system not yet initialized',
            'nv-fabricmanager: failed to initialize NVSwitch',
        ],
    ),
    (
        'fabric_manager_failure', None, False,
        [
            'CUDA initialization: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices() that might have already set an error? Error 802: system not yet initialized',
        ],
    ),
    (
        'dns_resolution_failure', None, False,
        [
            '[W socket.cpp:697] [c10d] The IPv6 network addresses of (master-0, 29500) cannot be retrieved (gai error: -2 - Name or service not known).',
            'torch.distributed.DistNetworkError: The client socket has failed to connect to any network address of (master-0, 29500). The client socket has timed out after 300000ms while trying to connect to (master-0, 29500).',
        ],
    ),
    (
        'port_in_use', None, False,
        [
            'RuntimeError: The server socket has failed to listen on any local network address. The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).',
        ],
    ),
    (
        'image_pull_or_start_failure', None, False,
        [
            'Failed to pull image "nvcr.io/nvidia/pytorch:26.01-py3": rpc error: code = Unknown desc = failed to pull and unpack image: unexpected status code 401 Unauthorized',
            'Warning  Failed  3s  kubelet  Error: ImagePullBackOff',
        ],
    ),
    (
        'shm_exhausted', None, True,
        [
            'ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).',
            "RuntimeError: DataLoader worker (pid 4121) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory.",
        ],
    ),
    (
        'node_crash', ['gpu-a17'], True,
        [
            'Apr  2 03:10:40 gpu-a17 kernel: mce: [Hardware Error]: Machine check events logged',
            'Apr  2 03:10:40 gpu-a17 kernel: EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0',
            'Apr 2 03:10:41 gpu-a17 kernel: Kernel panic - not syncing: Fatal machine check',
        ],
    ),
    (
        'host_hang', ['gpu-a17'], True,
        [
            'Apr  2 03:10:40 gpu-a17 kernel: watchdog: BUG: soft lockup - CPU#17 stuck for 23s! [python3:4121]',
        ],
    ),
    (
        'nvswitch_sxid', ['gpu-a17'], True,
        [
            'Apr 2 03:10:40 gpu-a17 kernel: nvidia-nvswitch3: SXid (PCI:0000:c6:00.0): 20034, Fatal, Link 30 LTSSM Fault Up',
        ],
    ),
    (
        'gpu_gsp_timeout', None, True,
        [
            'NVRM: Xid (PCI:0000:1b:00): 119, pid=4121, name=python3, Timeout after 6s of waiting for RPC response from GPU3 GSP! Expected function 76 (GSP_RM_CONTROL) (0x20801348 0x410).',
        ],
    ),
    (
        'gpu_fallen_off_bus', None, True,
        [
            "NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        ],
    ),
    (
        'local_disk_failure', ['gpu-a17'], True,
        [
            'Apr 2 03:10:40 gpu-a17 kernel: nvme nvme2: I/O 512 QID 12 timeout, aborting',
            'Apr 2 03:10:41 kernel: blk_update_request: I/O error, dev nvme2n1, sector 81234 op 0x0:(READ)',
            '[rank0]: OSError: [Errno 5] Input/output error',
        ],
    ),
    (
        'local_disk_failure', ['gpu-a17'], True,
        [
            'Apr 2 03:10:41 gpu-a17 kernel: EXT4-fs (nvme1n1): Remounting filesystem read-only',
            "[rank0]: OSError: [Errno 30] Read-only file system: '/local/ckpt'",
        ],
    ),
    (
        'hub_network_or_rate_limit', None, False,
        [
            'huggingface_hub.errors.HfHubHTTPError: 429 Client Error: Too Many Requests for url: https://huggingface.co/api/models/x',
        ],
    ),
    (
        'os_limit_exceeded', None, True,
        [
            'OpenBLAS blas_thread_init: pthread_create failed for thread 63 of 64: Resource temporarily unavailable',
            "RuntimeError: can't start new thread",
        ],
    ),
    (
        'scheduler_launch_failure', None, False,
        [
            'srun: error: Unable to create step for job 812: Invalid credential',
            'slurmd: error: Munge decode failed: Expired credential',
        ],
    ),
    (
        'ray_system_failure', None, True,
        [
            'ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.',
            '\tThe actor is dead because its node has died. Node Id: 2f3a. The node has died',
        ],
    ),
    (
        'cuda_device_unavailable', None, False,
        [
            'RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable',
        ],
    ),
    (
        'nccl_version_mismatch', None, False,
        [
            'NCCL WARN Mismatched NCCL version detected : rank 0 version 22203 rank 8 version 21805',
        ],
    ),
    (
        'ib_memory_registration_error', None, False,
        [
            'NCCL WARN Call to ibv_create_cq failed with error Cannot allocate memory',
            'libibverbs: Warning: RLIMIT_MEMLOCK is 65536 bytes.',
        ],
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("leaf", "nodes", "training", "lines"), CASES, ids=[f"{n} {c[0]}" for n, c in enumerate(CASES)]
)
def test_infrastructure_is_called_by_its_name(
    diagnose: Run, leaf: str, nodes: list[str] | None, training: bool, lines: list[str]
) -> None:
    found = diagnose((STEPS if training else "") + "\n".join(lines) + "\n")

    assert (found.outcome, found.failure_type) == (Outcome.FAILURE, leaf)
    assert found.first_fault is not None
    assert found.first_fault.line > (20 if training else 0)
    if nodes is not None:
        assert found.suspects.nodes == nodes


def test_the_reason_in_the_enroot_log_beats_the_headline_above_it(diagnose: Run) -> None:
    found = diagnose(
        "slurmstepd: error: pyxis: container start failed with error code: 1\n"
        "slurmstepd: error: pyxis: printing enroot log file:\n"
        "slurmstepd: error: pyxis:     nvidia-container-cli: initialization error: nvml error: "
        "driver/library version mismatch\n"
        "slurmstepd: error: pyxis: couldn't start container\n"
        "srun: error: dgx-b07: task 3: Exited with exit code 1\n"
    )
    assert (found.failure_type, found.suspects.nodes) == ("nvml_driver_mismatch", ["dgx-b07"])


@pytest.mark.parametrize(
    ("nodes", "excluded"),
    [(("m-118",) * 3, True), (("m-118",) * 2, False), (("m-118", "m-118", "m-7"), False)],
)
def test_a_node_on_which_every_start_fails_is_left_out(
    diagnose: Run, nodes: tuple[str, ...], excluded: bool
) -> None:
    """Such a node is always idle, so that the scheduler gives it every job that waits."""
    log = "".join(
        f"srun: error: Task launch for StepId={881 + i}.0 failed on node {node}: Communication connection failure\n"
        "srun: error: Application launch failed: Communication connection failure\n"
        for i, node in enumerate(nodes)
    )
    found = diagnose(log)
    assert found.failure_type == "scheduler_launch_failure"
    assert (found.recovery.action == "restart_and_exclude_suspect_node") is excluded
    assert ("fails every job" in found.summary) is excluded


EVENTS = (
    "flux-train-0 \u203a main  step 3300 loss 0.1821 6.1 it/s\n"
    "flux-train-3 \u203a main  [rank24] caching latents to /tmp/latents (212 GB so far)\n"
    "flux-train-0 \u203a main  step 3310 loss 0.1819 6.1 it/s\n"
    "14m   Warning  FailedScheduling  pod/{pending}  0/41 nodes are available: 41 Insufficient nvidia.com/gpu.\n"
    "3m4s  Warning  Evicted  pod/flux-train-3  The node was low on resource: ephemeral-storage. Threshold quantity: "
    "107374182, available: 81204Ki. Container main was using 228119020Ki, request is 0, has larger consumption\n"
)


@pytest.mark.parametrize(
    ("pending", "first"),
    [("nightly-eval-9xk2p", "k8s_pod_evicted"), ("flux-train-9", "scheduler_launch_failure")],
)
def test_events_of_pods_of_others_are_not_the_jobs(diagnose: Run, pending: str, first: str) -> None:
    found = diagnose(EVENTS.format(pending=pending))
    assert found.failure_type == first
