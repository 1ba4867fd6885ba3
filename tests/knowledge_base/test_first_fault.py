"""The causal behaviours that make the difference to grep, one test each."""

import pytest

from rerail.errors import RuleError
from rerail.knowledge_base.rules import make_rule

WATCHDOG = (
    "[rank{r}]:[E1122 06:{m:02d}:{s:02d}.504052851 ProcessGroupNCCL.cpp:616] [Rank {r}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={n}, NumelOut={n}, Timeout(ms)=600000) ran for 600051 milliseconds before timing out."
)
STATUS = (
    "[rank{r}]:[E1122 06:40:00.604052851 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg) Rank {r}] Exception (either an error "
    "or timeout) detected by watchdog at work: 122, last enqueued NCCL work: {e}, last completed NCCL work: 121."
)
STEPS = "\n".join(
    f"2024-11-22 06:{i:02d}:00,000 - INFO - step {i} loss {3 - i * 0.01:.3f}" for i in range(1, 28)
)


def watchdog(r, *, seq=122, op="ALLREDUCE", n=4096, m=40, s=0):
    return WATCHDOG.format(r=r, seq=seq, op=op, n=n, m=m, s=s)


def test_consequence_printed_before_its_cause(diagnose):
    d = diagnose(
        f"{STEPS}\n[rank0]: torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:275, remote process exited or there was a network error\n"
        "[rank0]: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n"
        '[rank5]: Traceback (most recent call last):\n[rank5]:   File "/job/train.py", line 8, in <module>\n'
        "[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 5 has a total capacity of 79.11 GiB\n"
    )
    assert (d.failure_type, d.suspects.ranks, d.first_fault.line) == ("cuda_oom", [5], 32)
    assert d.consequences


def test_the_culprit_printed_nothing(diagnose):
    lines = [f"[rank{r}] INFO world_size: 16 ready" for r in range(16)]
    lines += [watchdog(r, s=r) for r in range(16) if r != 11]
    d = diagnose("\n".join(lines))
    assert d.failure_type == "nccl_timeout_unexplained"
    assert d.suspects.ranks == [11]
    assert any("flight" in m.what for m in d.missing)


def test_the_rank_behind_by_status_lines(diagnose):
    lines = []
    for r in range(8):
        lines += [watchdog(r), STATUS.format(r=r, e=121 if r == 6 else 125)]
    assert diagnose("\n".join(lines)).suspects.ranks == [6]


def test_another_collective(diagnose):
    lines = [watchdog(r, op="BROADCAST" if r == 3 else "ALLREDUCE") for r in range(8)]
    d = diagnose("\n".join(lines))
    assert (d.failure_type, d.suspects.ranks) == ("rank_divergence", [3])
    assert d.recovery.action == "fix_code_or_config_do_not_restart"


def test_another_size(diagnose):
    d = diagnose("\n".join(watchdog(r, n=2048 if r == 1 else 4096) for r in range(4)))
    assert (d.failure_type, d.suspects.ranks) == ("rank_divergence", [1])


def test_a_busy_rank(diagnose):
    text = (
        f"{STEPS}\n2024-11-22 06:30:00,000 - INFO - Saving checkpoint step_27 to /ckpt\n"
        + "\n".join(watchdog(r) for r in (1, 2, 3))
    )
    d = diagnose(text)
    assert (d.failure_type, d.first_fault.line) == ("nccl_slow_rank_timeout", 28)


def test_a_node_seen_only_by_its_peers(diagnose):
    d = diagnose(
        f"{STEPS}\nnode-a:100:200 [0] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer node-zz7<41109>\n"
        "node-b:100:200 [1] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer node-zz7<41110>\n"
    )
    assert d.suspects.nodes == ["node-zz7"]
    assert d.status == "hypothesis"


def test_xid_joined_from_a_kernel_log_by_bus_id(diagnose):
    d = diagnose({
        "rank_logs.txt": "".join(
            f"gpu-7:{100 + r}:{100 + r} [{r}] NCCL INFO ncclCommInitRank comm 0x1 rank {r} nranks 8 cudaDev {r} nvmlDev {r} busId {bus} - Init COMPLETE\n"
            for r, bus in enumerate(["18000", "2a000", "3a000", "5d000", "9a000", "ab000", "ba000", "db000"])
        )
        + "\n".join(watchdog(r) for r in range(8) if r != 4),
        "dmesg-gpu-7.log": "[Fri Nov 22 06:29:58 2024] NVRM: Xid (PCI:0000:9a:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
                           "[Fri Nov 22 06:29:58 2024] NVRM: Xid (PCI:0000:9a:00): 45, pid=104, name=python3, Ch 00000008\n",
    })  # fmt: skip
    assert (d.failure_type, d.suspects.ranks, d.suspects.nodes) == (
        "gpu_fallen_off_bus",
        [4],
        ["gpu-7"],
    )
    assert {g.gpu for g in d.suspects.gpus} >= {4, "0000:9a:00"}
    assert d.recovery.targets.nodes == ["gpu-7"]
    assert d.status == "established"


def test_xid_joined_by_process_id(diagnose):
    d = diagnose(
        "[8123.1] NVRM: Xid (PCI:0000:3b:00): 48, pid=4412, name=python3, An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer\n"
        "[8123.2] NVRM: Xid (PCI:0000:3b:00): 63, pid=4412, Row Remapper: New row marked for remapping, reset gpu to activate.\n"
        "[rank1]: torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered\n"
        "E1122 06:40:09.0 1 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) local_rank: 1 (pid: 4412) of binary: /usr/bin/python3\n"
    )
    assert (d.failure_type, d.suspects.ranks, d.first_fault.line) == (
        "gpu_ecc_uncorrectable",
        [1],
        1,
    )


def test_an_application_xid_drains_nothing(diagnose):
    d = diagnose(
        "[8123.1] NVRM: Xid (PCI:0000:3b:00): 31, pid=4412, name=python3, Ch 00000008, MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7fc1_23456000\n"
        "[8123.1] NVRM: Xid (PCI:0000:3b:00): 43, pid=4412, name=python3, Ch 00000008\n"
        "[rank1]: RuntimeError: CUDA error: an illegal memory access was encountered\n"
    )
    assert (d.failure_type, d.recovery.action) == (
        "cuda_illegal_memory_access",
        "fix_code_or_config_do_not_restart",
    )
    assert d.recovery.targets.nodes == []


def test_memory_of_host_and_of_cgroup(diagnose):
    host = "[1.0] Out of memory: Killed process 77 (python3) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:1kB oom_score_adj:0\n"
    assert diagnose(host).failure_type == "host_oom_kill"
    assert (
        diagnose(
            "[1.0] Memory c"
            + host.split("] ")[1].replace("Out of", "group out of").replace("group", "group", 1)
        ).failure_type
        == "cgroup_oom_kill"
    )


def test_scheduler_reason_before_its_errors(diagnose):
    for reason, leaf in (
        ("DUE TO TIME LIMIT", "job_time_limit"),
        ("DUE TO PREEMPTION", "job_preempted"),
        ("DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS", "node_fail_scheduler"),
    ):
        d = diagnose(
            f"{STEPS}\nslurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2024-11-22T06:28:00 {reason} ***\n"
            "[rank3]: Traceback (most recent call last):\n[rank3]: KeyboardInterrupt\nsrun: error: n2: tasks 8-15: Terminated\n"
        )
        assert (d.failure_type, d.first_fault.line) == (leaf, 28), reason


def test_scancel_alone_is_a_user_stop(diagnose):
    d = diagnose(
        f"{STEPS}\nslurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2024-11-22T06:28:00 ***\nsrun: error: n1: tasks 0-7: Terminated\n"
    )
    assert (d.failure_type, d.recovery.action) == ("job_cancelled_or_hangup", "no_action_user_stop")


def test_cancelling_after_a_crash_is_teardown(diagnose):
    d = diagnose(
        f'{STEPS}\n[rank2]: Traceback (most recent call last):\n[rank2]:   File "/job/t.py", line 3, in <module>\n[rank2]: ZeroDivisionError: division by zero\n'
        "srun: error: n1: task 2: Exited with exit code 1\nslurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2024-11-22T06:28:00 ***\n"
    )
    assert (d.failure_type, d.suspects.ranks) == ("python_exception", [2])


def test_a_chain_begins_with_its_first_exception(diagnose):
    d = diagnose(
        "Traceback (most recent call last):\n  File \"/job/t.py\", line 3, in f\nFileNotFoundError: [Errno 2] No such file or directory: '/data/x.bin'\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        'Traceback (most recent call last):\n  File "/job/t.py", line 9, in <module>\nRuntimeError: could not build the dataset\n'
    )
    assert (d.failure_type, d.first_fault.line) == ("file_not_found", 3)


def test_an_exception_in_a_side_thread(diagnose):
    d = diagnose(
        f'{STEPS}\n7: Exception in thread Thread-9 (prefetch):\n7: Traceback (most recent call last):\n7:   File "/job/p.py", line 3, in run\n'
        "7: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 7 has a total capacity of 79.11 GiB\n"
        + "\n".join(watchdog(r) for r in range(7))
    )
    assert (d.failure_type, d.suspects.ranks) == ("cuda_oom", [7])


def test_the_last_attempt_is_judged(diagnose):
    d = diagnose(
        "step 1 loss 3.0\nstep 2 loss 2.9\n[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
        "INFO:torch.distributed.elastic.agent.server.api:[default] Worker group FAILED. 2/3 attempts left; will restart worker group\n"
        "step 2 loss 2.9\nstep 3 loss 2.8\n[rank2]: Traceback (most recent call last):\n[rank2]:   File \"/job/t.py\", line 1, in f\n[rank2]: KeyError: 'lr'\n"
    )
    assert d.suspects.ranks == [2]
    assert [(a.first_step, a.last_step) for a in d.attempts] == [(1, 2), (2, 3)]


def test_success_then_scary_teardown(diagnose):
    d = diagnose(
        f"{STEPS}\nTraining completed. 27 steps\n[rank1]: terminate called after throwing an instance of 'c10::DistBackendError'\n"
        "srun: error: n1: task 1: Aborted (core dumped)\n"
    )
    assert (d.outcome, d.failure_type, d.recovery.action) == (
        "no_failure",
        "teardown_hang_or_abort",
        "no_action_results_complete",
    )


def test_healthy_is_no_failure(diagnose):
    d = diagnose(STEPS + "\nWARNING: destroy_process_group() was not called before program exit\n")
    assert (d.outcome, d.failure_type, d.suspects.nodes) == ("no_failure", "no_failure", [])


def test_nothing_to_find_is_inconclusive_and_names_nobody(diagnose):
    d = diagnose("starting on node-77\nloading modules\n")
    assert (d.outcome, d.status, d.first_fault, d.suspects.nodes) == (
        "inconclusive",
        "unknown",
        None,
        [],
    )
    assert d.missing


def test_an_announced_run_that_just_stops(diagnose):
    d = diagnose(
        ':::MLLOG {"namespace": "", "time_ms": 1656964018247, "event_type": "INTERVAL_START", "key": "run_start", "value": null, "metadata": {}}\n'
        + STEPS
    )
    assert d.outcome == "inconclusive"
    assert any("step 27" in m.what for m in d.missing)


def test_numbers_alone(diagnose):
    nan = "\n".join(f"step {i} loss {'nan' if i > 12 else 3 - i * 0.01}" for i in range(1, 25))
    assert diagnose(nan).failure_type == "loss_nan"
    slow = "\n".join(
        f" iteration {i}/ 5000 | elapsed time per iteration (ms): {5000 + i % 3 if i < 30 else 7000 + i % 3}.1 | lm loss: 2.1E+00 |"
        for i in range(1, 60)
    )
    d = diagnose(slow)
    # The step before the slow one may already count: a change point has no sharper edge.
    assert d.failure_type == "fail_slow_unexplained" and d.first_fault.line in (29, 30)


def test_what_training_survived_is_ruled_out(diagnose):
    d = diagnose(
        'step 1 loss 3.0\n[rank1]: Traceback (most recent call last):\n[rank1]:   File "/job/t.py", line 1, in f\n[rank1]: ConnectionError: tracker away\n'
        + "\n".join(f"step {i} loss 2.9" for i in range(2, 30))
    )
    assert d.outcome == "no_failure"


def test_the_marks_under_source_lines_are_no_evidence(diagnose):
    found = diagnose(
        "[rank0]: Traceback (most recent call last):\n"
        '[rank0]:   File "/job/train.py", line 5, in main\n'
        '[rank0]:     x = batch["input_idz"]\n'
        "[rank0]:         ~~~~~^^^^^^^^^^^^^\n"
        "[rank0]: KeyError: 'input_idz'\n"
    )
    texts = [item.text for item in found.evidence]
    assert any("batch[" in text for text in texts) and not any("^^^" in text for text in texts)


def test_a_rule_may_show_the_line_beside_its_hit(diagnose):
    found = diagnose(
        "launching 12 nodes x 8\nh7: $ nvidia-smi --list-gpus | grep -c UUID\nh7: 6\n"
        "h7: RuntimeError: CUDA error: invalid device ordinal\n"
    )
    assert found.failure_type == "gpu_missing_at_start"
    assert found.first_fault is not None
    assert found.first_fault.line == 3


@pytest.mark.parametrize("keys", [{"tells_nearby": True}, {"tells_nearby": "3", "nearby": "3"}])
def test_a_line_beside_a_hit_must_be_named(keys):
    rule = {
        "id": "x",
        "role": "context",
        "tier": "library",
        "pattern": "abc",
        "matches": ["abc"],
        "source": "s",
        **keys,
    }
    with pytest.raises(RuleError, match="tells_nearby"):
        make_rule(rule, "site.yaml")


def test_a_listing_is_judged_by_its_own_count(diagnose):
    found = diagnose(
        "node-6: $ nvidia-smi -L | wc -l\nnode-6: 8\nnode-7: $ nvidia-smi -L | wc -l\nnode-7: 6\n"
        "node-7: RuntimeError: CUDA error: invalid device ordinal\n"
    )
    assert (found.failure_type, found.first_fault.line) == ("gpu_missing_at_start", 4)
    assert found.suspects.nodes == ["node-7"]
