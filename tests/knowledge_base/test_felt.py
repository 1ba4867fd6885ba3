"""Who felt the fault of a machine: who waited, another host and a label that counts something else did not."""

from __future__ import annotations

import pytest

from rerail.domain.diagnosis import Diagnosis

OLD = "RuntimeError: The NVIDIA driver on your system is too old (found version 12000). Please update your GPU driver\n"
WAITED = "[rank0]: torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 3/4 clients joined.\n"
PULL = (
    'Warning  Failed  29m  kubelet  Failed to pull image "hub.lab/vision/llava:1.6": failed to do request\n'
    "Warning  Failed  29m  kubelet  Error: ErrImagePull\n"
)
DMESG = "[Thu Jul 10 14:08:55 2025] mlx5_core 0000:9a:00.0: Port module event: module 0, Cable unplugged\n"
INIT = "{host}:{pid}:{tid} [4] NCCL INFO comm 0x55b7 rank {rank} nranks 16 cudaDev 4 nvmlDev 4 busId 9b000 commId 0x8d1c - Init COMPLETE\n"
PORT = "{host}:{pid}:{tid} [4] transport/net_ib.cc:92 NCCL WARN NET/IB : mlx5_4:1 Got async event : port error\n"
RETRY = (
    "{host}:{pid}:{tid} [4] transport/net_ib.cc:1733 NCCL WARN NET/IB : Got completion from peer 10.11.4.21<52144> "
    "with status=12 opcode=32671 len=0 vendor err 129 (Recv) hca mlx5_4\n"
)
LOST = "[Wed Nov 19 10:02:54 2025] mlx5_core 0000:5e:00.0 ibs3: Link down\n"


def nccl(host: str, pid: int, rank: int, *lines: str) -> str:
    return "".join(one.format(host=host, pid=pid, tid=pid + 9, rank=rank) for one in (INIT, *lines))


def test_a_rank_that_waited_for_others_at_the_start_felt_nothing(diagnose):
    found = diagnose(
        {"describe.txt": f"Name: llava-5\nNode: bm-19/10.0.0.9\n{PULL}", "llava-0.txt": WAITED}
    )
    assert found.failure_type == "image_pull_or_start_failure"
    assert found.suspects.ranks == []


def test_a_process_on_the_host_that_its_library_tells_of_felt_it_and_that_of_another_host_did_not(
    diagnose,
):
    logs = {
        "hgx-21.dmesg": DMESG,
        "nccl.hgx-20.51884": nccl("hgx-20", 51884, 4, RETRY),
        "nccl.hgx-21.40237": nccl("hgx-21", 40237, 12, PORT),
    }
    found = diagnose(logs)
    assert (found.suspects.ranks, found.suspects.nodes) == ([12], ["hgx-21"])
    logs["nccl.hgx-21.40237"] = nccl("hgx-21", 40237, 12)
    found = diagnose(logs)
    # Who complains of the other end is named with its own host, and never with the other one.
    assert (found.suspects.ranks, found.suspects.nodes) == ([4], ["hgx-20"])
    assert found.headline.startswith("Rank 4 on hgx-20 got no answer over InfiniBand or RoCE")


def test_a_label_below_what_its_processes_call_themselves_names_no_rank(diagnose):
    there = nccl("wk-2", 206, 18) + nccl("wk-2", 207, 19, RETRY)
    found = diagnose({"worker-2.log": there, "wk-2.dmesg": LOST})
    assert 2 not in found.suspects.ranks


SMI = (
    "GPU 00000000:5D:00.0\n    Clocks Event Reasons\n        HW Slowdown                       : Active\n"
    "            HW Thermal Slowdown           : Active\n"
)
MAP = "dgxh-1: ranks 0-7\ndgxh-2: ranks 8-15\n"


def report(rank: int) -> str:
    return f"MnEtpt/Rnk: 121.33TF/{rank} | MxEtpt/Rnk: 402.61TF/7\n"


def test_a_framework_names_the_slow_rank_of_a_slow_host(diagnose):
    logs = {"dgxh-2_nvidia-smi-q.txt": SMI, "rankmap.txt": MAP, "train.log": report(11)}
    found = diagnose(logs)
    assert (found.suspects.ranks, found.suspects.nodes) == ([11], ["dgxh-2"])
    elsewhere = diagnose(logs | {"train.log": report(3)})
    assert 3 not in elsewhere.suspects.ranks
    two = diagnose(logs | {"train.log": report(11) + report(12)})
    assert len(two.suspects.ranks) != 1


TIMEOUT = (
    "[rank{rank}]:[E1022 03:20:44.384702048 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=61112, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=1800000) ran for 1800003 "
    "milliseconds before timing out.\n"
)
SEGFAULT = (
    "[Wed Oct 22 {clock} 2025] python3[51203]: segfault at 7f3c18 ip 00007f3c18a0 sp 00007f9b11ff error 4 in "
    "libnccl.so.2.21.5[7f3c00+9a000]\n"
)
WORKERS = (
    "UserWarning: This DataLoader will create 16 worker processes in total. Our suggested max number of worker in "
    "current system is 12, which is smaller than what this DataLoader is going to create.\n"
)


def hang(diagnose, *, clock: str) -> Diagnosis:
    both = TIMEOUT.format(rank=0) + TIMEOUT.format(rank=8)
    return diagnose({"train.log": WORKERS + both, "w-1.dmesg": SEGFAULT.format(clock=clock)})


@pytest.mark.parametrize(
    ("clock", "leaf"),
    [("02:50:02", "comm_library_bug"), ("03:21:02", "nccl_timeout_unexplained")],
)
def test_a_process_that_died_behind_the_time_outs_did_not_cause_them(diagnose, clock, leaf):
    assert hang(diagnose, clock=clock).failure_type == leaf


KEY = (
    "Traceback (most recent call last):\n"
    '  File "/job/train.py", line 61, in collate\n'
    "KeyError: 'attention_mask'\n"
)
AGENT = (
    "  min_nodes        : 2\n  max_nodes        : 2\n  nproc_per_node   : 8\n"
    "train.py FAILED\nRoot Cause (first observed failure):\n[0]:\n  time      : 2025-06-03_02:27:54\n"
    "  host      : gn-113\n  rank      : 2 (local_rank: 2)\n  exitcode  : -6 (pid: 30293)\n"
)


def test_where_nobody_was_named_the_aborted_rank_that_had_waited_is_not_the_place(diagnose):
    """An exception in a file that names neither rank nor host, in a job of two nodes of which one tells its end."""
    logs = {"agent-a.log": AGENT, "r2.log": TIMEOUT.format(rank=2), "other.log": KEY}
    found = diagnose(logs)
    assert found.first_fault.text.startswith("KeyError")
    assert found.first_fault.node is None
    alone = AGENT.replace("_nodes        : 2", "_nodes        : 1")
    assert diagnose(logs | {"agent-a.log": alone}).first_fault.node == "gn-113"


ASSERTION = (
    "../aten/src/ATen/native/cuda/Indexing.cu:1289: indexSelectLargeIndex: block: [411,0,0], thread: [64,0,0] "
    "Assertion `srcIndex < srcSelectDimSize` failed.\n"
    "[rank18]: RuntimeError: CUDA error: device-side assert triggered\n"
)


def test_torchruns_table_of_another_rank_does_not_place_a_rank_that_is_known(diagnose):
    table = AGENT.replace("-6", "1").replace("(pid", "(pid")
    found = diagnose({"agent-a.log": table, "other.log": ASSERTION})
    assert found.first_fault.rank == 18
    assert found.first_fault.node is None


SKIPPED = "2025-04-05 12:13:20,007 WARNING eval: skipping batch 103: operands could not be broadcast together with shapes (512,) (500,)\n"


def test_a_file_called_after_host_and_task_is_of_that_rank_where_its_kind_bears_it_out(diagnose):
    logs = {
        f"run_icp-g{1 + rank // 8}_{rank}.err": TIMEOUT.format(rank=rank) for rank in (0, 10, 11)
    }
    own = {"run_icp-g2_10.err": SKIPPED + TIMEOUT.format(rank=10)}
    found = diagnose(logs | own).first_fault
    assert (found.rank, found.node) == (10, "icp-g2")
    # The numbers are no ranks where the labels inside one of the files are of another.
    other = logs | own | {"run_icp-g2_11.err": TIMEOUT.format(rank=3)}
    assert diagnose(other).first_fault.rank is None


GATED = (
    "Traceback (most recent call last):\n"
    '  File "/job/hub.py", line 406, in hf_raise_for_status\n'
    "requests.exceptions.HTTPError: 403 Client Error: Forbidden for url: https://huggingface.co/m/resolve/main/config.json\n"
)


def test_what_every_host_is_refused_alike_is_no_hosts(diagnose):
    found = diagnose({"node-a1.log": GATED, "node-a2.log": GATED})
    assert (found.first_fault.node, found.suspects.nodes) == (None, [])
    assert diagnose({"node-a1.log": GATED, "node-a2.log": "step 3\n"}).first_fault.node == "node-a1"


STRAGGLER = (
    "0: [2024-10-23 01:{minute}:44] | MnRtt/Rnk: 1447.02ms/13 | MxRtt/Rnk: 2288.1ms/{rank} | MnEtpt/Rnk: 309.4TF/{rank} | MxEtpt/Rnk: 608.8TF/13\n"
    "31: [2024-10-23 01:{minute}:45] iteration {step}/ 100000 | elapsed time per iteration (ms): {ms} | lm loss: 2.1E+00 |\n"
)
BRAKE = (
    "    Clocks Event Reasons\n"
    "        HW Slowdown                       : Active\n"
    "        HW Power Brake Slowdown           : Active\n"
)


def slow_job(*ranks: int) -> str:
    return "".join(
        STRAGGLER.format(minute=29 + n, step=10 * n, ms=8200.0 if not n else 12870.0, rank=rank)
        for n, rank in enumerate(ranks)
    )


def test_the_rank_that_all_reports_name_is_the_slow_one_where_nothing_tells_who_runs_there(
    diagnose,
):
    found = diagnose(
        {"job.out": slow_job(20, 20, 20, 20), "nvidia-smi -q -d PERFORMANCE (p0-0103)": BRAKE}
    )
    assert found.failure_type == "slow_gpu"
    assert (found.first_fault.rank, found.first_fault.node) == (20, "p0-0103")
    for ranks in ((20, 20), (20, 20, 20, 21)):
        other = diagnose(
            {"job.out": slow_job(*ranks), "nvidia-smi -q -d PERFORMANCE (p0-0103)": BRAKE}
        )
        assert other.first_fault is None or other.first_fault.rank is None


def test_one_report_is_enough_where_it_shows_the_rank_throttled(diagnose):
    clocks = " | MnClk/Rnk: {low}MHz/20 | MxClk/Rnk: 1980.00MHz/13 | lm"
    smi = {"nvidia-smi -q -d PERFORMANCE (p0-0103)": BRAKE}
    for low, rank in ((570, 20), (1900, None)):
        report = slow_job(20, 20).replace("/13\n", "/13" + clocks.format(low=low) + "\n")
        found = diagnose({"job.out": report} | smi)
        assert found.failure_type == "slow_gpu"
        assert (found.first_fault.rank, found.first_fault.node) == (rank, "p0-0103")


REAPED = (
    "E1109 11:52:22.713000 139921 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -6) local_rank: {local} (pid: 140010) of binary: /usr/bin/python\n"
    "Root Cause (first observed failure):\n"
    "[0]:\n"
    "  time      : 2024-11-09_11:52:10\n"
    "  host      : mi-11\n"
    "  rank      : {local} (local_rank: {local})\n"
    "  exitcode  : -6 (pid: 140010)\n"
    "  traceback : Signal 6 (SIGABRT) received by PID 140010\n"
)
BUSES = "GPU[0]\t\t: PCI Bus: 0000:05:00.0\nGPU[7]\t\t: PCI Bus: 0000:E5:00.0\n"
AMDGPU = "[Sat Nov  9 11:51:58 2024] amdgpu 0000:e5:00.0: uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!\n"


@pytest.mark.parametrize(("local", "rank"), [(0, None), (7, 7)])
def test_who_ended_first_is_not_the_rank_of_another_gpu(diagnose, local, rank):
    logs = {"run.log": REAPED.format(local=local), "rocm-smi (mi-11)": BUSES}
    found = diagnose(logs | {"dmesg -T (mi-11)": AMDGPU})
    assert found.failure_type == "gpu_ecc_uncorrectable"
    assert (found.first_fault.rank, found.first_fault.node) == (rank, "mi-11")
