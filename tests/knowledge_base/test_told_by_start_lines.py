"""Ranks and hosts that start lines, tables of launchers and reports of frameworks tell."""

TABLE = """\
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2023-06-03_{time}
  host      : {host}
  rank      : {rank} (local_rank: 0)
  exitcode  : 1 (pid: {pid})
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""
RAISED = """\
Traceback (most recent call last):
  File "/home/u/train.py", line 371, in main
    accelerator.backward(loss)
torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.53 GiB (GPU 0; 39.56 GiB total capacity; 35.90 GiB already allocated)
"""
MISMATCH = "Mismatched NCCL version detected : rank {one} version 22105 rank 5 version 22005"


def tables(first, second):
    return TABLE.format(time=first, host="gpu203", rank=4, pid=19401) + TABLE.format(
        time=second, host="gpu187", rank=0, pid=19414
    )


def test_a_traceback_without_a_label_is_of_the_process_that_ended_before_all_other_hosts(diagnose):
    found = diagnose(RAISED + tables("22:45:01", "22:45:52"))
    assert (found.suspects.ranks, found.first_fault.node) == ([4], "gpu203")
    assert diagnose(RAISED + tables("22:45:01", "22:45:02")).suspects.ranks == []


def test_a_host_in_front_may_differ_in_the_letter_of_its_rack(diagnose):
    lines = [f"mi-{rack}01 | step {n} loss 2.1" for n in range(4) for rack in "ab"]
    lines += [
        f"mi-b01 | {line}"
        for line in TABLE.format(time="09:11:30", host="mi-b01", rank=5, pid=41002).splitlines()
    ]
    lines += [
        "==== FILE mi-b01 dmesg -T ====",
        "[Fri Mar 21 09:11:28 2025] Out of memory: Killed process 41002 (python) total-vm:760440924kB, anon-rss:244880448kB, file-rss:0kB",
    ]
    found = diagnose("\n".join(lines).replace("exitcode  : 1", "exitcode  : -9") + "\n")
    assert (found.suspects.ranks, found.suspects.nodes) == ([5], ["mi-b01"])


def test_a_rank_that_others_accuse_is_where_its_own_start_line_is(diagnose):
    lines = [f"grpo-{n} main RANK={n} WORLD_SIZE=6 LOCAL_RANK=0 torch 2.6.0" for n in range(6)]
    lines += [f"grpo-{n} main loading the model" for n in range(6)]
    noticed = [
        "grpo-0 main grpo-0:88:190 [0] init.cc:1021 NCCL WARN " + MISMATCH.format(one=0),
        *(f"grpo-{n} main [rank{n}]: {MISMATCH.format(one=n)}" for n in (0, 1, 3)),
    ]
    table = "POD      NODE\n" + "".join(f"grpo-{n}   k8w-a1{n}\n" for n in range(6))
    found = diagnose({"grpo.log": "\n".join([*lines, *noticed]) + "\n", "pods.txt": table})
    alone = diagnose({"grpo.log": "\n".join([*lines, noticed[0]]) + "\n", "pods.txt": table})
    assert (found.suspects.ranks, found.suspects.nodes) == ([5], ["k8w-a15"])
    assert (alone.suspects.ranks, alone.suspects.nodes) == ([], [])


def test_a_straggler_is_where_the_report_puts_it(diagnose):
    lines = [
        "[NeMo I 2025-06-02 14:31:07 straggler_det_callback:150] GPU relative performance:",
        "  Worst performing 5/32 ranks:",
        "     Rank=19 Node=dgx-117 Score=0.42",
        "     Rank=4 Node=dgx-115 Score=0.97",
        "[NeMo W 2025-06-02 14:31:07 straggler_det_callback:178] STRAGGLER DETECTION WARNING: Some GPUs have worse relative performance. Affected ranks: {19: 0.42}",
        "[NeMo W 2025-06-02 14:31:07 straggler_det_callback:191] Detected stragglers. Terminating training...",
        "srun: error: dgx-115: task 0: Exited with exit code 1",
    ]
    found = diagnose("\n".join(lines) + "\n")
    assert found.failure_type == "slow_gpu"
    assert (found.suspects.ranks, found.suspects.nodes) == ([19], ["dgx-117"])


def test_the_task_that_stopped_its_heartbeats_is_the_rank(diagnose):
    front = "2022-11-15 16:03:15.1400{n}: E coordination_service.cc:{line}] "
    lines = [
        front.format(n=58, line=954)
        + "/job:jax_worker/replica:0/task:37 has been set to ERROR in coordination service: UNAVAILABLE: Task /job:jax_worker/replica:0/task:37 heartbeat timeout.",
        front.format(n=60, line=487)
        + "Stopping coordination service as heartbeat has timed out for /job:jax_worker/replica:0/task:37 and there is no service-to-client connection",
    ]
    found = diagnose("\n".join(lines) + "\n")
    assert (found.first_fault.line, found.suspects.ranks) == (1, [37])


def test_a_value_that_one_line_leaves_out_is_not_one_that_is_no_number(diagnose):
    steps = [f"step {100 * n}/800 loss={2 - n / 10:.3f} grad_norm=0.8{n}" for n in range(1, 8)]
    end = ["step 800/800 loss=1.044", "Training finished. Saved final checkpoint to /ckpt/final"]
    assert diagnose("\n".join([*steps, *end]) + "\n").outcome == "no_failure"
    lost = [*steps, "step 800/800 loss=nan grad_norm=nan", "step 900/900 loss=nan grad_norm=nan"]
    assert diagnose("\n".join(lost) + "\n").failure_type == "loss_nan"


def test_what_a_table_and_a_described_pod_tell_is_of_their_own_pods(diagnose):
    lines = [
        "$ kubectl -n research get po -o custom-columns=NAME:.metadata.name,NODE:.spec.nodeName",
        "NAME               NODE",
        *(f"bert-worker-{n}      a30-00{n}" for n in range(3)),
        "",
        *(f"bert-worker-{n} main RANK={n} WORLD_SIZE=3" for n in range(3)),
        "$ kubectl -n research describe po bert-worker-2",
        "Name:             bert-worker-2",
        "Node:             a30-002/10.40.0.28",
        "Reason:           Evicted",
        "Message:          The node was low on resource: ephemeral-storage. Threshold quantity: 75100960885, available: 49664872Ki.",
    ]
    found = diagnose("\n".join(lines) + "\n")
    assert found.suspects.nodes == ["a30-002"]
    assert set(found.suspects.ranks) <= {2}
