"""Who and where: a fault is joined to its rank, GPU and node, and nobody is named on a guess."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rerail.domain.diagnosis import Action, Diagnosis, Outcome, Status

Run = Callable[[str | dict[str, str]], Diagnosis]

BUSES = ("19000", "3b000", "4c000", "5d000", "9b000", "bb000", "cb000", "db000")


def init(node: str, first_rank: int = 0, world: int = 16) -> str:
    """What NCCL_DEBUG=INFO prints for the eight GPUs of a node."""
    return "".join(
        f"{node}:{4400 + i}:{4500 + i} [{i}] NCCL INFO ncclCommInitRankConfig comm 0x55d5c8a0 rank {first_rank + i} "
        f"nranks {world} cudaDev {i} nvmlDev {i} busId {bus} commId 0x3f8a - Init COMPLETE\n"
        for i, bus in enumerate(BUSES)
    )


def steps(count: int = 12) -> str:
    return "".join(
        f"2026-03-01 02:{i:02d}:00 iteration {i}/ 500 | lm loss: 2.5E+00 |\n"
        for i in range(1, count + 1)
    )


def watchdog(rank: int, minute: int = 40) -> str:
    return (
        f"[rank{rank}]:[E301 02:{minute}:07.500000000 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=812, OpType=ALLREDUCE, NumelIn=4096, NumelOut=4096, Timeout(ms)=600000) "
        "ran for 600012 milliseconds before timing out.\n"
    )


def kernel(code: int, words: str, pci: str = "0000:9b:00", at: str = "02:29:58") -> str:
    return f"[Sun Mar  1 {at} 2026] NVRM: Xid (PCI:{pci}): {code}, {words}\n"


def test_the_same_bus_id_on_two_nodes_is_told_apart_by_the_kernel_log_of_one(diagnose: Run) -> None:
    found = diagnose(
        {
            "train.log": init("hx-01")
            + init("hx-02", 8)
            + steps()
            + "".join(map(watchdog, range(12))),
            "dmesg-hx-02.txt": kernel(
                79, "pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
            ),
        }
    )
    assert found.failure_type == "gpu_fallen_off_bus"
    assert (found.suspects.nodes, found.suspects.ranks) == (["hx-02"], [12])
    assert {str(g.gpu) for g in found.suspects.gpus} == {"4", "0000:9b:00"}
    assert found.recovery.action is Action.DRAIN_NODE
    assert found.recovery.targets.nodes == ["hx-02"]
    assert found.first_fault is not None
    assert found.first_fault.file == "dmesg-hx-02.txt"
    assert sum(c.count for c in found.consequences) >= 12


def test_a_bus_id_on_two_nodes_and_a_kernel_log_of_no_node_name_no_rank(diagnose: Run) -> None:
    found = diagnose(
        {
            "train.log": init("hx-01") + init("hx-02", 8) + steps(),
            "dmesg.txt": kernel(79, "GPU has fallen off the bus."),
        }
    )
    assert found.failure_type == "gpu_fallen_off_bus"
    assert found.suspects.ranks == []
    assert found.suspects.nodes == []


@pytest.mark.parametrize(
    ("pci", "rank"), [("0000:19:00", 0), ("0000:DB:00", 7), ("3b:00.0", 1), ("00000000:5d:00", 3)]
)
def test_pci_addresses_are_read_however_they_are_written(
    diagnose: Run, pci: str, rank: int
) -> None:
    found = diagnose(
        {
            "train.log": init("hx-01", world=8) + steps(),
            "dmesg-hx-01.txt": kernel(79, "GPU has fallen off the bus.", pci),
        }
    )
    assert found.suspects.ranks == [rank]


def test_a_process_id_of_the_kernel_is_joined_through_nccl(diagnose: Run) -> None:
    found = diagnose(
        {
            "train.log": init("hx-01", world=8).replace("busId", "bus") + steps()
            + "(WorkerRank5 pid=4405) hello\n",
            "dmesg-hx-01.txt": kernel(48, "pid=4405, name=python, DBE (Double Bit Error) ECC Error"),
        }
    )  # fmt: skip
    assert found.failure_type == "gpu_ecc_uncorrectable"
    assert found.suspects.ranks == [5]
    assert found.suspects.nodes == ["hx-01"]


@pytest.mark.parametrize(
    ("code", "words", "leaf"),
    [
        (
            31,
            "pid=4404, name=python, Ch 00000008, intr 10000000. MMU Fault: ENGINE GRAPHICS",
            "cuda_illegal_memory_access",
        ),
        (
            13,
            "pid=4404, name=python, Graphics SM Warp Exception on (GPC 0, TPC 1): Illegal Instruction",
            None,
        ),
    ],
)
def test_an_application_xid_alone_accuses_no_node(
    diagnose: Run, code: int, words: str, leaf: str | None
) -> None:
    found = diagnose(
        {
            "train.log": init("hx-01", world=8) + steps()
            + "[rank4]: Traceback (most recent call last):\n"
            + '[rank4]:   File "/job/train.py", line 9, in <module>\n'
            + "[rank4]: RuntimeError: CUDA error: an illegal memory access was encountered\n",
            "dmesg-hx-01.txt": kernel(code, words),
        }
    )  # fmt: skip
    assert found.outcome is Outcome.FAILURE
    assert found.recovery.action is not Action.DRAIN_NODE
    assert found.recovery.targets.nodes == []
    assert leaf is None or found.failure_type == leaf


@pytest.mark.parametrize("order", [(79, 31, 43, 45), (45, 43, 31, 79)])
def test_xids_of_one_gpu_within_a_second_are_judged_by_weight(
    diagnose: Run, order: tuple[int, ...]
) -> None:
    words = {
        79: "GPU has fallen off the bus.",
        31: "pid=4404, name=python, MMU Fault",
        43: "pid=4404, Ch 00000008",
        45: "pid=4404, Ch 00000018",
    }
    found = diagnose(
        {"train.log": init("hx-01", world=8) + steps(), "dmesg-hx-01.txt": "".join(kernel(c, words[c]) for c in order)}
    )  # fmt: skip
    assert found.failure_type == "gpu_fallen_off_bus"
    assert found.suspects.ranks == [4]


def test_an_xid_45_alone_is_what_ending_a_process_prints(diagnose: Run) -> None:
    found = diagnose({"dmesg.txt": kernel(45, "pid=4404, name=python, Ch 00000008")})
    assert found.status is not Status.ESTABLISHED
    assert found.recovery.action is not Action.DRAIN_NODE


def test_an_xid_long_before_that_training_survived_is_not_the_cause(diagnose: Run) -> None:
    crash = (
        "2026-03-01 02:30:07 [rank2]: Traceback (most recent call last):\n"
        '[rank2]:   File "/job/train.py", line 9, in <module>\n'
        "2026-03-01 02:30:07 [rank2]: KeyError: 'lr'\n"
    )
    found = diagnose(
        {
            "train.log": steps(29) + crash,
            "dmesg.txt": kernel(31, "pid=1, name=python, MMU Fault", at="02:05:30"),
        }
    )
    assert (found.failure_type, found.suspects.ranks) == ("python_exception", [2])


def test_a_fault_on_many_ranks_alike_is_nobodys(diagnose: Run) -> None:
    text = steps() + "".join(
        f"[rank{r}]: Traceback (most recent call last):\n"
        f'[rank{r}]:   File "/job/train.py", line 9, in <module>\n'
        f"[rank{r}]: ModuleNotFoundError: No module named 'flash_attn'\n"
        for r in range(8)
    )
    found = diagnose(text)
    assert found.failure_type == "module_not_found" or found.category is not None
    assert found.suspects.ranks == []
    assert found.suspects.nodes == []


def test_localhost_is_no_node(diagnose: Run) -> None:
    found = diagnose(
        "".join(f"localhost:{50 + i}:{60 + i} [{i}] NCCL INFO comm 0x1 rank {i} nranks 2 cudaDev {i} busId {b} - Init COMPLETE\n" for i, b in enumerate(BUSES[:2]))
        + "localhost:51:61 [1] NCCL WARN Cuda failure 'out of memory'\n"
    )  # fmt: skip
    assert "localhost" not in found.suspects.nodes
    assert found.first_fault is None or found.first_fault.node != "localhost"


def test_a_node_named_only_by_its_peers_is_a_hypothesis_and_no_drain(diagnose: Run) -> None:
    text = steps() + "".join(
        f"hx-{n:02d}:440{n}:450{n} [0] misc/socket.cc:484 NCCL WARN socketProgress: Connection closed by remote peer hx-07<39214>\n"
        for n in (1, 2, 3)
    )
    found = diagnose(text)
    assert found.status is Status.HYPOTHESIS
    assert found.suspects.nodes == ["hx-07"]
    assert found.recovery.action is Action.EXCLUDE_NODE


def test_peers_that_accuse_two_nodes_accuse_none(diagnose: Run) -> None:
    text = steps() + "".join(
        f"hx-01:4401:4501 [0] misc/socket.cc:484 NCCL WARN socketProgress: Connection closed by remote peer hx-{n}<39214>\n"
        for n in ("07", "08")
    )
    found = diagnose(text)
    assert found.suspects.nodes == []


def test_the_block_of_mpirun_names_the_rank(diagnose: Run) -> None:
    found = diagnose(
        "Primary job  terminated normally, but 1 process returned\n"
        "a non-zero exit code. Per user-direction, the job has been aborted.\n"
        "mpirun detected that one or more processes exited with non-zero status, thus causing\n"
        "the job to be terminated. The first process to do so was:\n\n"
        "  Process name: [[6789,1],5]\n"
        "  Exit code:    1\n"
    )
    assert (found.failure_type, found.suspects.ranks) == ("process_exit_unexplained", [5])


def test_a_kernel_assertion_is_of_the_rank_that_reports_it(diagnose: Run) -> None:
    assertion = (
        "../aten/src/ATen/native/cuda/Indexing.cu:1289: indexSelectLargeIndex: block: [110,0,0],"
        " thread: [64,0,0] Assertion `srcIndex < srcSelectDimSize` failed.\n"
    )
    said = "[rank%d]: torch.AcceleratorError: CUDA error: device-side assert triggered\n"
    assert diagnose(steps() + assertion + said % 5).suspects.ranks == [5]
    assert diagnose(steps() + assertion + said % 5 + said % 6).suspects.ranks == []


def test_a_task_that_jax_misses_is_named(diagnose: Run) -> None:
    found = diagnose(
        "I0601 03:10:02.000000 12 train.py:88] completed step: 100, loss: 3.221\n"
        "F0601 03:11:02.000000 1200 client.h:77] Terminating process because the JAX distributed service"
        " detected fatal errors. absl::Status: UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats):\n"
        "/job:jax_worker/replica:0/task:17\n"
        "The tasks have crashed. Check the task logs for an earlier error.\n"
    )
    assert (found.failure_type, found.suspects.ranks) == ("process_exit_unexplained", [17])
    assert found.status is not Status.ESTABLISHED


def test_an_xid_13_comes_before_the_time_out_that_follows_it(diagnose: Run) -> None:
    found = diagnose(
        "[100.1] NVRM: Xid (PCI:0000:cb:00): 13, pid=17, name=python3, Graphics SM Warp Exception on"
        " (GPC 7, TPC 7, SM 0): Illegal Instruction Parameter\n"
        "[105.2] NVRM: Xid (PCI:0000:cb:00): 109, pid=17, name=python3, Ch 00000008, errorString CTX SWITCH TIMEOUT\n"
    )
    assert found.failure_type == "cuda_illegal_memory_access"


def test_steps_that_wait_for_data_are_slow_for_their_data(diagnose: Run) -> None:
    line = "step %d loss 2.0 step_time %.3fs data_time %.3fs\n"
    quick = "".join(line % (at, 1.0, 0.01) for at in range(150))
    waiting = "".join(line % (at, 2.6, 1.6) for at in range(150, 300))
    computing = "".join(line % (at, 2.6, 0.01) for at in range(150, 300))
    assert diagnose(quick + waiting).failure_type == "slow_dataloading_storage"
    assert diagnose(quick + computing).failure_type == "fail_slow_unexplained"


def test_a_process_id_that_repeats_between_nodes_names_nobody_elsewhere(diagnose: Run) -> None:
    ranks = "".join(
        f"hx-{n:02d}:{1000 + g}:{2000 + g} [{g}] NCCL INFO comm 0x1 rank {2 * n + g} nranks 4 cudaDev {g} nvmlDev {g}"
        f" busId {bus} - Init COMPLETE\n"
        for n in range(2)
        for g, bus in enumerate(BUSES[:2])
    )
    address = f"0000:{BUSES[1][:-3]}:00"
    xid = f"Mar  1 12:00:30 hx-01 kernel: NVRM: Xid (PCI:{address}): 79, pid=%s, name=python3, GPU has fallen off the bus.\n"
    for pid in ("1001", "1000", "77"):
        found = diagnose(ranks + steps() + xid % pid)
        assert (found.suspects.ranks, found.suspects.nodes) == ([3], ["hx-01"])
    # Without an address that NCCL told, the id on that node decides; on another node it does not.
    unknown = xid.replace(address, "0000:ee:00")
    assert diagnose(ranks + steps() + unknown % "1000").suspects.ranks == [2]
    assert (
        diagnose(ranks + steps() + unknown.replace("hx-01", "hx-07") % "1000").suspects.ranks == []
    )


def sixteen_less(rank: int) -> str:
    """A job on gpu-a01 and gpu-a03 whose ranks all time out but one."""
    waiting = "".join(watchdog(r) for r in range(16) if r != rank)
    return init("gpu-a01") + init("gpu-a03", 8) + steps() + waiting


FELL = "[2026-03-01 02:{at}] NVRM: Xid (PCI:0000:bb:00): 79, pid=7, name=python, GPU has fallen off the bus.\n"


@pytest.mark.parametrize("name", ["dmesg/gpu-a03.log", "console-gpu-a03.log", "xid_gpu-a03.txt"])
def test_a_kernel_log_is_of_the_node_its_file_is_called_after(diagnose: Run, name: str) -> None:
    found = diagnose({"job.out": sixteen_less(13), name: FELL.format(at="29:58")})
    assert (found.failure_type, found.status) == ("gpu_fallen_off_bus", Status.ESTABLISHED)
    assert (found.suspects.ranks, found.suspects.nodes) == ([13], ["gpu-a03"])


def test_a_fault_of_a_node_beside_the_job_is_not_the_cause(diagnose: Run) -> None:
    found = diagnose({"job.out": sixteen_less(13), "dmesg/gpu-a02.log": FELL.format(at="29:58")})
    assert found.failure_type == "nccl_timeout_unexplained"
    assert (found.suspects.ranks, found.suspects.nodes) == ([13], ["gpu-a03"])
    assert any("not one of the job's" in r.because for r in found.ruled_out)


def test_a_machine_is_not_beside_the_job_because_its_pods_have_other_names(diagnose: Run) -> None:
    job = sixteen_less(13).replace("gpu-a0", "trainer-worker-")
    found = diagnose({"job.out": job, "dmesg/gke-n7.log": FELL.format(at="29:58")})
    assert (found.failure_type, found.suspects.nodes) == ("gpu_fallen_off_bus", ["gke-n7"])


def test_who_tells_of_a_lost_peer_is_not_where_the_kernel_panicked(diagnose: Run) -> None:
    found = diagnose(
        {
            "job.out": steps()
            + "3: n041:801:900 [3] NCCL INFO misc/socket.cc:58 -> 6\n"
            + "3: [rank3]: socketProgress: Connection closed by remote peer n044<49012>\n",
            "console-n044.log": "[88211.9] Kernel panic - not syncing: Fatal exception in interrupt\n",
        }
    )
    assert (found.failure_type, found.suspects.ranks) == ("node_crash", [])
    assert found.suspects.nodes == ["n044"]


def test_a_described_pod_is_on_the_node_that_it_names_and_a_worker_file_is_a_pod(
    diagnose: Run,
) -> None:
    worker = "".join(
        f"[rank{r}]: ncclRemoteError: A call failed possibly due to a network error or a remote "
        "process exiting prematurely.\n"
        for r in range(8)
    )
    described = (
        "Name:             t-worker-5\nNamespace:        nlp\n"
        "Node:             ip-10-4-7-118.ec2.internal/10.4.7.118\n"
        "    State:          Terminated\n      Reason:       OOMKilled\n      Exit Code:    137\n"
    )
    warned = "t-worker-0:71:900 [3] NCCL WARN NET/IB : Got completion from peer 10.4.7.118<5> with status=12\n"
    found = diagnose(
        {"worker-0.log": steps() + warned + worker, "describe-worker-5.txt": described}
    )
    assert (found.failure_type, found.suspects.ranks) == ("cgroup_oom_kill", [])
    assert found.suspects.nodes == ["ip-10-4-7-118.ec2.internal"]


def test_a_side_thread_that_died_on_the_missing_rank_is_why_the_others_waited(
    diagnose: Run,
) -> None:
    died = "".join(
        f"[rank3]: {line}\n"
        for line in (
            "Exception in thread Prefetch-1:",
            "Traceback (most recent call last):",
            '  File "/a/prefetch.py", line 88, in _worker',
            "    batch = self._collate(rows)",
            "KeyError: 'input_ids'",
        )
    )
    later = steps(16).splitlines(keepends=True)[12:]
    waiting = "".join(watchdog(r) for r in range(8) if r != 3)
    found = diagnose(steps() + died + "".join(later) + waiting)
    assert found.failure_type == "python_exception"
    assert (found.suspects.ranks, found.status) == ([3], Status.SUPPORTED)
    assert found.first_fault is not None
    assert "KeyError" in found.first_fault.text


def test_a_node_that_only_the_kernel_names_is_not_where_a_program_failed(diagnose: Run) -> None:
    corrected = (
        "[Sun Mar  1 02:03:05 2026] gpu-0042 kernel: NVRM: Xid (PCI:0000:1b:00): 94, pid=1, "
        "name=python, Contained: CE User Channel (0x9). RST: No, D-RST: No\n"
    )
    disk = "[rank1]: OSError: [Errno 28] No space left on device: '/ckpt/step_30.pt'\n"
    found = diagnose(steps(3) + corrected + steps(12) + disk)
    assert (found.failure_type, found.suspects.ranks) == ("disk_full_or_quota", [1])
    assert found.suspects.nodes == []
