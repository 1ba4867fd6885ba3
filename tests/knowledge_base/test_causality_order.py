"""What came first: not the loudest line, not the first line, not what training survived."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from rerail.domain.diagnosis import Action, Diagnosis, Outcome, Status

Run = Callable[[str | dict[str, str]], Diagnosis]


def steps(count: int = 12, start: int = 1, label: str = "") -> str:
    return "".join(
        f"{label}2026-03-01 02:{i % 60:02d}:00 iteration {i}/ 500 | lm loss: 2.5E+00 |\n"
        for i in range(start, start + count)
    )


def trace(rank: int, error: str, at: str = "") -> str:
    label = f"[rank{rank}]: "
    return (
        f"{at}{label}Traceback (most recent call last):\n"
        f'{at}{label}  File "/job/train.py", line 88, in <module>\n'
        f"{at}{label}    main()\n"
        f"{at}{label}{error}\n"
    )


OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 3 has a total capacity of 79.11 GiB"
GLOO = "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.4]:41772"


@pytest.mark.parametrize("seed", range(6))
def test_the_cause_is_found_however_the_ranks_interleave(diagnose: Run, seed: int) -> None:
    source = random.Random(seed)
    streams = [trace(r, OOM if r == 3 else GLOO).splitlines() for r in range(8)]
    mixed = []
    while any(streams):
        mixed.append(source.choice([s for s in streams if s]).pop(0))
    found = diagnose(steps() + "\n".join(mixed) + "\n")
    assert (found.failure_type, found.suspects.ranks) == ("cuda_oom", [3])
    assert found.first_fault is not None
    assert found.first_fault.text.endswith("79.11 GiB")
    assert found.first_fault.line == 12 + 1 + next(
        i for i, x in enumerate(mixed) if "OutOfMemory" in x
    )


def test_a_deeper_fault_a_long_time_after_did_not_cause_the_first(diagnose: Run) -> None:
    found = diagnose(
        {
            "train.log": steps()
            + trace(3, "ValueError: batch 12 has 7 columns", "2026-03-01 02:13:00 "),
            "dmesg.txt": "[Sun Mar  1 04:40:00 2026] NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus.\n",
        }
    )
    assert (found.failure_type, found.suspects.ranks) == ("python_exception", [3])
    assert found.suspects.gpus == []


CANCEL = "slurmstepd: error: *** STEP 918234.0 ON hx-01 CANCELLED AT 2026-03-01T02:13:05 {why}***\n"
AFTER = (
    "[rank1]: Traceback (most recent call last):\n[rank1]: KeyboardInterrupt\n"
    "W0301 02:13:06.000000 140 torch/distributed/elastic/agent/server/api.py:704] Received 15 death signal, shutting down workers\n"
    "W0301 02:13:06.100000 140 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 4401 closing signal SIGTERM\n"
    "srun: error: hx-02: tasks 8-15: Terminated\n"
    "srun: error: hx-01: tasks 0-7: Killed\n"
)


@pytest.mark.parametrize(
    ("why", "leaf"),
    [
        ("DUE TO TIME LIMIT ", "job_time_limit"),
        ("DUE TO PREEMPTION ", "job_preempted"),
    ],
)
@pytest.mark.parametrize("late", [False, True], ids=["reason first", "reason last"])
def test_the_scheduler_is_the_cause_of_what_it_brings(
    diagnose: Run, why: str, leaf: str, late: bool
) -> None:
    reason = CANCEL.format(why=why)
    found = diagnose(steps() + (AFTER + reason if late else reason + AFTER))
    assert found.failure_type == leaf
    assert found.first_fault is not None
    assert "CANCELLED AT" in found.first_fault.text
    assert found.suspects.ranks == []


def test_a_node_failure_is_the_cause_of_what_it_brings(diagnose: Run) -> None:
    reason = CANCEL.format(why="DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ")
    found = diagnose(steps() + reason + AFTER)
    assert found.failure_type == "node_fail_scheduler"
    assert found.first_fault is not None
    assert found.first_fault.line == 13


def test_a_cancelled_step_is_a_stop_by_the_user(diagnose: Run) -> None:
    found = diagnose(steps() + CANCEL.format(why="") + AFTER)
    assert found.failure_type == "job_cancelled_or_hangup"
    assert found.recovery.targets.nodes == []


def test_a_crash_before_the_cancelling_is_the_cause(diagnose: Run) -> None:
    crash = trace(2, "ZeroDivisionError: division by zero", "2026-03-01 02:13:00 ")
    found = diagnose(steps() + crash + CANCEL.format(why="") + AFTER)
    assert (found.failure_type, found.suspects.ranks) == ("python_exception", [2])


def test_a_termination_from_outside_with_no_reason_is_no_fault_of_a_node(diagnose: Run) -> None:
    found = diagnose(steps() + AFTER.replace("srun: error: hx-01: tasks 0-7: Killed\n", ""))
    assert found.failure_type in ("job_cancelled_or_hangup", None)
    assert found.status is not Status.ESTABLISHED
    assert found.suspects.nodes == []


def test_kernel_and_cgroup_and_python_memory_are_three_things(diagnose: Run) -> None:
    host = (
        "[Sun Mar  1 02:13:00 2026] python invoked oom-killer: gfp_mask=0x140cca(GFP_HIGHUSER_MOVABLE|__GFP_COMP), order=0, oom_score_adj=0\n"
        "[Sun Mar  1 02:13:00 2026] oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0-1,global_oom,task_memcg=/,task=python,pid=4404,uid=1000\n"
        "[Sun Mar  1 02:13:00 2026] Out of memory: Killed process 4404 (python) total-vm:812345678kB, anon-rss:498765432kB, file-rss:0kB, shmem-rss:0kB, UID:1000\n"
    )
    group = (
        "[Sun Mar  1 02:13:00 2026] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=step_0,mems_allowed=0-1,oom_memcg=/slurm/uid_1000/job_918234,task=python,pid=4404,uid=1000\n"
        "[Sun Mar  1 02:13:00 2026] Memory cgroup out of memory: Killed process 4404 (python) total-vm:81234567kB, anon-rss:49876543kB, file-rss:0kB\n"
    )
    train = steps() + "srun: error: hx-01: task 4: Killed\n"
    by_host = diagnose({"train.log": train, "dmesg-hx-01.txt": host})
    by_group = diagnose({"train.log": train, "dmesg-hx-01.txt": group})
    by_python = diagnose(
        {
            "train.log": steps() + trace(4, "MemoryError"),
            "dmesg-hx-01.txt": "[Sun Mar  1 02:00:00 2026] booted\n",
        }
    )
    assert [d.failure_type for d in (by_host, by_group)] == ["host_oom_kill", "cgroup_oom_kill"]
    assert by_python.first_fault is not None
    assert (by_python.first_fault.file, by_python.suspects.ranks) == ("train.log", [4])
    assert by_python.failure_type != "cgroup_oom_kill"


def test_slurm_tells_of_a_cgroup_kill_without_a_kernel_log(diagnose: Run) -> None:
    found = diagnose(
        steps()
        + "slurmstepd: error: Detected 1 oom_kill event in StepId=918234.0. Some of the step tasks have been OOM Killed.\n"
        + "srun: error: hx-01: task 4: Out Of Memory\n"
    )
    assert found.failure_type == "cgroup_oom_kill"


def test_a_kill_without_any_memory_evidence_stays_unexplained(diagnose: Run) -> None:
    found = diagnose(steps() + "srun: error: hx-01: task 4: Killed\n")
    assert found.failure_type == "process_killed_unexplained"
    assert found.status is not Status.ESTABLISHED
    assert any("kernel log" in m.what for m in found.missing)


@pytest.mark.parametrize(
    "words",
    [
        "During handling of the above exception, another exception occurred:",
        "The above exception was the direct cause of the following exception:",
    ],
)
def test_the_first_link_of_a_chain_is_the_fault(diagnose: Run, words: str) -> None:
    first = trace(
        2, "FileNotFoundError: [Errno 2] No such file or directory: '/data/shard_0007.bin'"
    )
    text = (
        steps()
        + first
        + f"[rank2]: \n[rank2]: {words}\n[rank2]: \n"
        + trace(2, "RuntimeError: loader failed")
    )
    found = diagnose(text)
    assert found.failure_type == "file_not_found"
    assert found.first_fault is not None
    assert found.first_fault.line == 16


def test_an_exception_of_a_side_thread_that_training_survived_is_not_the_fault(
    diagnose: Run,
) -> None:
    thread = (
        "Exception in thread Thread-12 (upload_metrics):\nTraceback (most recent call last):\n"
        '  File "/usr/lib/python3.11/threading.py", line 1045, in _bootstrap_inner\n'
        "    self.run()\nrequests.exceptions.ConnectionError: HTTPSConnectionPool(host='api.tracker', port=443)\n"
    )
    found = diagnose(steps(10) + thread + steps(30, 11))
    assert found.outcome is Outcome.NO_FAILURE
    found = diagnose(
        steps(10) + thread + steps(30, 11) + trace(5, "ZeroDivisionError: division by zero")
    )
    assert found.suspects.ranks == [5]


RESTART = (
    "W0301 02:20:00.000000 140 torch/distributed/elastic/agent/server/api.py:900] [default] Worker group FAILED. "
    "2/3 attempts left; will restart worker group\n"
)


def test_the_last_attempt_in_one_log_is_judged_and_progress_is_told(diagnose: Run) -> None:
    text = steps(10) + trace(1, OOM) + RESTART + steps(10, 6) + trace(2, "KeyError: 'lr'")
    found = diagnose(text)
    assert (found.failure_type, found.suspects.ranks) == ("python_exception", [2])
    assert [(a.first_step, a.last_step, a.ended) for a in found.attempts] == [
        (1, 10, "restarted"),
        (6, 15, "last"),
    ]


def test_a_restart_that_heals_is_no_failure(diagnose: Run) -> None:
    text = steps(10) + trace(1, OOM) + RESTART + steps(40, 6) + "Training completed.\n"
    found = diagnose(text)
    assert found.outcome is Outcome.NO_FAILURE


def test_the_last_attempt_of_a_torchrun_tree_is_judged(diagnose: Run) -> None:
    found = diagnose(
        {
            "r/attempt_0/0/stderr.log": steps(10) + trace(0, OOM).replace("[rank0]: ", ""),
            "r/attempt_1/0/stderr.log": steps(10, 8),
            "r/attempt_1/1/stderr.log": trace(1, "KeyError: 'lr'").replace("[rank1]: ", ""),
        }
    )
    assert found.suspects.ranks == [1]
    assert [(a.number, a.last_step) for a in found.attempts] == [(0, 10), (1, 17)]


TEARDOWN = (
    "[rank1]: terminate called after throwing an instance of 'c10::DistBackendError'\n",
    "[rank1]:[W301 02:50:00.500000000 ProcessGroupNCCL.cpp:1250] Warning: WARNING: process group has NOT been destroyed before we destruct ProcessGroupNCCL.\n",
    "corrupted size vs. prev_size\nsrun: error: hx-01: task 1: Aborted (core dumped)\n",
)


@pytest.mark.parametrize("noise", TEARDOWN, ids=["terminate", "warning", "abort"])
def test_what_comes_after_success_is_teardown(diagnose: Run, noise: str) -> None:
    found = diagnose(steps(30) + "Training completed.\n" + noise)
    assert found.outcome is Outcome.NO_FAILURE
    assert found.recovery.action in (Action.NONE, Action.RESULTS_COMPLETE)
    assert found.suspects.nodes == []


def test_a_checkpoint_that_cannot_be_written_after_success_is_a_failure(diagnose: Run) -> None:
    found = diagnose(
        steps(30)
        + "Training completed.\n"
        + trace(0, "OSError: [Errno 28] No space left on device: '/ckpt/final.pt'")
    )
    assert found.outcome is Outcome.FAILURE
    assert found.failure_type == "disk_full_or_quota"


def test_a_run_that_was_announced_and_falls_silent_is_inconclusive_and_says_what_to_collect(
    diagnose: Run,
) -> None:
    begin = ':::MLLOG {"namespace": "", "time_ms": 1772331247000, "event_type": "INTERVAL_START", "key": "run_start", "value": null, "metadata": {}}\n'
    found = diagnose(begin + steps(20))
    assert found.outcome is Outcome.INCONCLUSIVE
    assert found.progress["last_step"] == 20
    assert found.suspects.nodes == []
    assert any("py-spy" in m.how_to_get for m in found.missing)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n\n",
        "hello from hx-01\n",
        "loading modules\nexport RANK=3\nhx-09: ready\n",
        "INFO: nothing\n" * 500,
    ],
)
def test_nothing_to_find_invents_nothing(diagnose: Run, text: str) -> None:
    found = diagnose({"train.log": text, "other.log": "starting on hx-77\n"})
    assert found.outcome is Outcome.INCONCLUSIVE
    assert found.first_fault is None
    assert found.suspects.nodes == []
    assert found.suspects.ranks == []
    assert found.recovery.action is Action.PAGE_HUMAN
    assert found.missing


BENIGN = [
    "[W301 02:05:00.1 Module.cpp:160] symbolizing C++ stack trace for exception; if this hangs, rerun with TORCH_DISABLE_ADDR2LINE=1...\n",
    "FutureWarning: `torch.cuda.amp.autocast(args...)` is deprecated.\n",
    "WARNING:torch.distributed.run:Setting OMP_NUM_THREADS environment variable for each process to be 1 in default\n",
    "hx-01:4401:4501 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.\n",
    "huggingface/tokenizers: The current process just got forked, after parallelism has already been used.\n",
    "wandb: WARNING Failed to upload file, retrying\n",
    "2026-03-01 02:05:00 INFO validation error rate: 0.25, exit criteria: none, killed branches: 0\n",
    "2026-03-01 02:05:00 INFO retrying after ConnectionResetError: [Errno 104] Connection reset by peer\n",
]


@pytest.mark.parametrize("noise", BENIGN, ids=[b[:24] for b in BENIGN])
def test_a_benign_line_is_no_failure(diagnose: Run, noise: str) -> None:
    found = diagnose(steps(10) + noise + steps(30, 11))
    assert found.outcome is Outcome.NO_FAILURE
    assert found.failure_type == "no_failure"
    assert found.first_fault is None


def test_an_interrupt_is_what_the_scheduler_s_signal_raised(diagnose: Run) -> None:
    cancelled = "slurmstepd: error: *** STEP 4711.0 ON n3 CANCELLED AT 2026-03-01T02:12:50"
    log = steps() + trace(0, "KeyboardInterrupt")

    found = diagnose(log + f"{cancelled} ***\n")
    assert (found.failure_type, found.suspects.nodes) == ("job_cancelled_or_hangup", [])
    assert found.first_fault is not None
    assert "CANCELLED AT" in found.first_fault.text

    found = diagnose(log + f"{cancelled} DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***\n")
    assert found.failure_type == "node_fail_scheduler"

    found = diagnose(log)
    assert found.failure_type == "job_cancelled_or_hangup"
    assert found.first_fault is not None
    assert found.first_fault.text.endswith("KeyboardInterrupt")


def test_a_fatal_line_that_no_rule_knows_is_no_healthy_end(diagnose: Run) -> None:
    found = diagnose(steps() + "[rank3] FATAL: slab pool exhausted after 811 slabs\n")
    assert found.outcome is Outcome.INCONCLUSIVE
    assert found.first_fault is not None
    assert (found.first_fault.line, found.first_fault.rank) == (13, 3)

    later = steps() + "FATAL: retrying shard 7\n" + steps(12, 13)
    assert diagnose(later).outcome is Outcome.NO_FAILURE
