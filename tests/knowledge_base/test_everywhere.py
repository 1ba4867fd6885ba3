"""A fault that all ranks have alike is nobody's: no rank, no host, and the headline says so."""

from __future__ import annotations

ASSERT = "AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size 256 != 4 * 8 * 4"


def raised(rank: int, host: str) -> str:
    lines = [
        "Traceback (most recent call last):",
        '  File "/job/ft.py", line 96, in <module>',
        ASSERT,
    ]
    return "".join(f"{host}: [rank{rank}]: {line}\n" for line in lines)


def test_a_wrong_argument_on_all_ranks_is_of_no_rank_and_no_host(diagnose):
    found = diagnose("".join(raised(r, f"gn-0{1 + r // 2}") for r in (2, 0, 3, 1)))
    assert (found.first_fault.rank, found.first_fault.node) == (None, None)
    assert (found.suspects.ranks, found.suspects.nodes) == ([], [])
    assert found.headline.startswith("Ranks 0 to 3 were given a wrong configuration")


def test_a_wrong_argument_on_one_rank_is_of_that_rank(diagnose):
    found = diagnose(raised(2, "gn-02"))
    assert (found.first_fault.rank, found.first_fault.node) == (2, "gn-02")


def test_the_rank_that_prints_the_loss_of_all_is_not_the_one_that_is_named(diagnose):
    steps = "".join(f"[rank0]: step {s} loss {9 / s:.3f} grad_norm 0.3\n" for s in range(1, 12))
    found = diagnose(
        steps + "".join(f"[rank0]: step {s} loss nan grad_norm nan\n" for s in (12, 13, 14))
    )
    assert (found.failure_type, found.first_fault.rank) == ("loss_nan", None)


def mismatch(speaker: int, own: str, other: int, others: str) -> str:
    return (
        f"gn-0{1 + speaker // 2}: [rank{speaker}]: RuntimeError: Detected mismatch between collectives on ranks. Rank "
        f"{speaker} is running collective: CollectiveFingerPrint(SequenceNumber=18211OpType={own}), but Rank {other} is "
        f"running collective: CollectiveFingerPrint(SequenceNumber=18211, OpType={others}, TensorShape=[4])."
        "Collectives differ in the following aspects: \t Op type: BARRIERvs ALLREDUCE\n"
    )


def test_the_one_whom_all_tell_of_is_not_cleared_by_their_number(diagnose):
    told = "".join(mismatch(rank, "ALLREDUCE", 3, "BARRIER") for rank in (0, 1, 2))
    found = diagnose(mismatch(3, "BARRIER", 0, "ALLREDUCE") + told)
    assert (found.failure_type, found.suspects.ranks) == ("rank_divergence", [3])


def test_the_only_process_that_ended_on_the_host_of_a_broken_gpu_had_it(diagnose):
    agent = (
        "mi-22: E0902 15:10:49.013000 810 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: -6) "
        "local_rank: 4 (pid: 828) of binary: /usr/bin/python\nmi-22: Root Cause (first observed failure):\nmi-22: [0]:\n"
        "mi-22:   time      : 2026-09-02_15:10:48\nmi-22:   host      : mi-22\nmi-22:   rank      : 12 (local_rank: 4)\n"
        "mi-22:   exitcode  : -6 (pid: 828)\nmi-22: ============================================================\n"
    )
    peer = "mi-21: [rank3]: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n"
    kernel = (
        "2026-09-02T15:10:41.220431+00:00 mi-22 kernel: [812204.1] amdgpu 0000:9d:00.0: amdgpu: 1 new uncorrectable "
        "hardware errors detected in umc block\n"
    )
    assert diagnose(agent + peer + kernel).suspects.ranks == [12]
    also = "mi-22: [rank9]: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n"
    assert diagnose(agent + peer + also + kernel).suspects.ranks == []


def test_a_port_that_all_processes_of_a_host_see_fail_is_of_the_host_and_no_rank(diagnose):
    init = "gn-{host}:{pid}:90 [{gpu}] NCCL INFO ncclCommInitRank comm 0x5 rank {rank} nranks 8 cudaDev {gpu} nvmlDev {gpu} busId 1b000 - Init COMPLETE\n"
    down = "gn-2:{pid}:90 [{gpu}] transport/net_ib.cc:103 NCCL WARN NET/IB : mlx5_4:1 Got async event : port error\n"
    told = [init.format(host=1 + r // 4, pid=100 + r, gpu=r % 4, rank=r) for r in range(8)]
    told += [down.format(pid=100 + r, gpu=r % 4) for r in (7, 4, 5, 6)]
    found = diagnose("".join(told))
    assert (found.first_fault.rank, found.first_fault.node) == (None, "gn-2")
    assert found.suspects.ranks == []
    assert [why.what for why in found.place] == ["node gn-2"]


def test_the_rank_that_raises_what_all_reduced_before_is_not_the_one_that_overflowed(diagnose):
    found = diagnose(
        "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run. (raised on rank 0)\n"
    )
    assert (found.first_fault.rank, found.suspects.ranks) == (None, [])
