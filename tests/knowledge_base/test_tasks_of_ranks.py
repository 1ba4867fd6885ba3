"""A scheduler's task that starts several ranks is no rank, and tells on which host its ranks are."""

NCCL_DOWN = "{task}: gn-{host}:3181:3502 [5] transport/net_ib.cc:289 NCCL WARN NET/IB : mlx5_5:1 Got async event : port error"
STARTED = "{task}: gn-{host}:3120:3120 [0] NCCL INFO NET/Plugin: Using internal network plugin."


def raised(task, rank, local):
    front = f"{task}: [default{local}]:[rank{rank}]: "
    return [
        front + "Traceback (most recent call last):",
        front + '  File "/opt/train/main.py", line 212, in <module>',
        front
        + "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:275, remote process exited or there was a network error, NCCL version 2.23.4",
    ]


def test_a_device_of_a_task_is_the_rank_that_the_other_tasks_show(diagnose):
    lines = [STARTED.format(task=n, host=9 + n) for n in range(4)]
    lines += [NCCL_DOWN.format(task=2, host=11), *raised(1, 13, 5), *raised(3, 29, 5)]
    found = diagnose("\n".join(lines) + "\n")
    assert (found.suspects.ranks, found.suspects.nodes) == ([21], ["gn-11"])


def test_without_another_task_to_count_by_no_rank_is_named(diagnose):
    lines = [STARTED.format(task=n, host=9 + n) for n in range(4)]
    lines += [NCCL_DOWN.format(task=2, host=11), *raised(1, 13, 5)]
    assert diagnose("\n".join(lines) + "\n").suspects.ranks == []


def test_ranks_that_start_twice_behind_two_tasks_are_nobodys_number(diagnose):
    lines = [
        f"{task}: Initializing distributed: GLOBAL_RANK: {rank}, MEMBER: {rank + 1}/8"
        for task in (0, 1)
        for rank in range(4)
    ]
    lines += [
        "1: [W socket.cpp:426] [c10d] The server socket has failed to bind to [::]:53394 (errno: 98 - Address already in use).",
        "1: torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address.",
        "srun: error: vision07: task 0: Exited with exit code 1",
        "srun: error: vision11: task 1: Exited with exit code 1",
    ]
    found = diagnose("\n".join(lines) + "\n")
    assert found.suspects.ranks == []
    assert "Rank" not in found.headline
    assert found.first_fault.rank is None


def test_the_task_of_a_host_that_holds_other_ranks_is_no_rank(diagnose):
    lines = [
        "gpu-b06: world: node_rank=0 ranks=0-7   gpu-b07: world: node_rank=1 ranks=8-15",
        "srun: error: gpu-b07: task 1: Exited with exit code 1",
        "==== FILE gpu-b07.dmesg ====",
        "[Thu May  9 22:17:40 2024] pcieport 0000:ae:02.0: AER: Uncorrected (Fatal) error received: 0000:ae:02.0",
    ]
    found = diagnose("\n".join(lines) + "\n")
    assert (found.suspects.ranks, found.suspects.nodes) == ([], ["gpu-b07"])


def test_the_gpu_that_fell_off_behind_a_bridge_tells_the_rank(diagnose):
    lines = [
        "gpu-b06: world: node_rank=0 ranks=0-7   gpu-b07: world: node_rank=1 ranks=8-15",
        "==== FILE gpu-b07.dmesg ====",
        "[Thu May  9 22:17:40 2024] pcieport 0000:ae:02.0: AER: Uncorrected (Fatal) error received: 0000:ae:02.0",
        "[Thu May  9 22:17:41 2024] NVRM: Xid (PCI:0000:b3:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        "==== FILE gpu-b07.nvidia-smi-L-before.txt ====",
        "index, pci.bus_id",
        *(
            f"{n}, 00000000:{bus}:00.0"
            for n, bus in enumerate(("19", "3B", "4C", "5D", "9B", "B3"))
        ),
    ]
    found = diagnose("\n".join(lines) + "\n")
    assert (found.suspects.ranks, found.suspects.nodes) == ([13], ["gpu-b07"])
