"""Who is blamed: the copy that knows its place, the one whom witnesses agree on, the host that a cloud took back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rerail.assistant.pipeline import diagnose_texts
from rerail.domain.diagnosis import Diagnosis, Outcome
from rerail.knowledge_base import statements
from rerail.log_parsers import labels

Run = Callable[[str | dict[str, str]], Diagnosis]
STEPS = "".join(
    f"[rank{r}]: step {s} loss {2.1 - s / 100:.2f}\n" for s in range(1, 4) for r in range(4)
)


def test_of_two_copies_the_one_with_a_place_is_cited(diagnose: Run) -> None:
    summary = "ERROR launcher summary: ZeroDivisionError: division by zero\n"
    raised = (
        "[rank2]: Traceback (most recent call last):\n"
        '[rank2]:   File "/w/t.py", line 3, in f\n[rank2]: ZeroDivisionError: division by zero\n'
    )
    for text in (summary + raised, raised + summary):
        first = diagnose(STEPS + text).first_fault
        assert first is not None
        assert (first.rank, first.text.startswith("[rank2]")) == (2, True)


def test_a_client_raises_again_what_the_worker_of_a_rank_told(diagnose: Run) -> None:
    """Dask tells an exception beside the key of its task, and raises it in the client, which is no rank."""

    def told(rank: int, error: str) -> str:
        head = "2026-03-01 10:00:09,100 - distributed.worker - ERROR - Compute Failed\n"
        return f'{head}Key:       fit-rank-{rank}\nState:     executing\nException: "{error}"\n\n'

    client = (
        'Traceback (most recent call last):\n  File "/w/client.py", line 9, in <module>\n'
        "    client.gather(futures)\nZeroDivisionError: division by zero\n"
    )
    raised = "ZeroDivisionError('division by zero')"
    one = diagnose({"client.log": client, "worker.log": told(5, raised)})
    assert list(one.suspects.ranks) == [5]
    two = diagnose({"client.log": client, "worker.log": told(5, raised) + told(6, raised)})
    assert not two.suspects.ranks


def mismatch(speaker: int, subject: int = 16) -> str:
    return (
        f"[rank{speaker}]: NCCL WARN Mismatched NCCL version detected : rank {speaker} version 22304 "
        f"rank {subject} version 21805\n"
    )


def test_several_witnesses_agree_on_one_and_two_do_not(diagnose: Run) -> None:
    several = diagnose(STEPS + "".join(mismatch(rank) for rank in (0, 1, 2)))
    assert several.suspects.ranks == [16]
    assert diagnose(STEPS + mismatch(0)).suspects.ranks == []


def test_an_instance_that_the_cloud_took_back_is_the_node(diagnose: Run) -> None:
    audit = '{"methodName":"compute.instances.preempted","resourceName":"projects/p/zones/z/instances/w38"}\n'
    found = diagnose("[host w37] step 1 loss 2\n[host w38] step 1 loss 2\n" + audit)
    assert (found.failure_type, found.suspects.nodes) == ("job_preempted", ["w38"])


def test_a_kernel_s_line_without_a_host_is_of_the_node_that_the_scheduler_lost(
    diagnose: Run,
) -> None:
    panic = "<0>[2315424.098863] Kernel panic - not syncing: hung_task: blocked tasks\n"
    peer = "hgx-44: [rank40]: RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.4]:1\n"
    found = diagnose(panic + peer + "srun: error: Node failure on hgx-41\n")
    assert found.suspects.nodes == ["hgx-41"]
    # Without the scheduler's word nobody is named: the job has more nodes than the one that speaks.
    assert diagnose(panic + peer).suspects.nodes == []


def test_the_label_counts_tasks_where_its_process_calls_itself_a_higher_rank(diagnose: Run) -> None:
    text = (
        "[15]<stdout>:worker-23:83:2520 [0] NCCL INFO Channel 00 : 137[3] -> 138[0] [receive] via NET/Socket/0\n"
        "[0]<stdout>:step 3180 loss=0.4012\n[0]<stdout>:step 3190 loss=0.4007\n"
        "[15]<stdout>:worker-23:83:2526 [0] misc/socket.cc:503 NCCL WARN Net : Call to recv from "
        "100.96.188.199<41468> failed : Connection timed out\n"
    )
    first = diagnose(text).first_fault
    assert first is not None
    assert (first.rank, first.node) == (138, "worker-23")


def test_a_line_that_says_on_which_rank_it_is_so_is_not_about_its_writer(diagnose: Run) -> None:
    text = STEPS + (
        '[rank0]:Traceback (most recent call last):\n[rank0]:  File "/w/train.py", line 91, in <module>\n'
        "[rank0]:    check(loss)\n[rank0]:ValueError: loss is nan on rank 3 at step 42, stopping the run\n"
    )
    assert diagnose(text).suspects.ranks == [3]


def test_a_program_that_ends_in_order_behind_its_own_error_has_failed(diagnose: Run) -> None:
    step = (
        " iteration        2/      {} | elapsed time per iteration (ms): 1870.3 | lm loss: 1.08E+01 |\n"
        "ERROR:megatron.core.rerun_state_machine:Unexpected result nan on rank 3 at iteration #3 invocation #2 "
        "(message='found NaN in local grad norm')\n[exiting program at iteration 2] datetime: 2026-05-27 01:22:41\n"
    )
    assert diagnose(step.format(50)).outcome is Outcome.INCONCLUSIVE
    again = (
        "ERROR:megatron.core.rerun_state_machine:Rank 3, node elk-07, device 3, iteration #3: First rerun: unexpected "
        "result is reproducible within the tolerance (nan = nan)\n[exiting"
    )
    first = diagnose(step.format(50).replace("[exiting", again)).first_fault
    assert first is not None
    assert (first.rank, first.node) == (3, "elk-07")
    # At its planned step the run has done what it was to do.
    assert diagnose(step.format(2)).outcome is Outcome.NO_FAILURE


def test_an_exception_that_no_rule_knows_behind_the_last_step_is_no_healthy_run(
    diagnose: Run,
) -> None:
    text = STEPS + "[rank0]: FluxError: the flux capacitor of bucket 7 is not aligned\n"
    assert diagnose(text).outcome is not Outcome.NO_FAILURE


def test_a_new_launcher_identity_and_exit_need_data_alone(
    diagnose: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three things that rerail does not know are told it in the form of its YAML files."""
    text = (
        "~4~ step 1 loss 2.0\n~5~ step 1 loss 2.0\nseat plan: unit 5 sits in rack-b7\n"
        "orchestrion: unit 5 was let go with verdict -11\n"
    )
    assert diagnose(text).outcome is not Outcome.FAILURE
    label = labels.make_label(
        {"id": "tilde", "kind": "own", "pattern": r"~(?P<rank>\d+)~ ", "begins": "~"}, "site.yaml"
    )
    told = statements.parse(
        {
            "forms": [
                {"id": "unit-seat", "literals": ["seat plan"], "pattern": r"unit (?P<rank>\d+) sits in (?P<node>\S+)"},
                {"id": "unit-end", "tells": "exit", "literals": ["was let go"],
                 "pattern": r"unit (?P<rank>\d+) was let go with verdict (?P<code>-?\d+)"},
            ]
        },
        "site.yaml",
    )  # fmt: skip
    for cached in (labels._by_first, labels._peeled_again, statements.forms):
        cached.cache_clear()
    every, all_labels = (*statements.all_forms(), *told), (label, *labels.labels())
    monkeypatch.setattr(statements, "all_forms", lambda: every)
    monkeypatch.setattr(labels, "labels", lambda: all_labels)
    try:
        found = diagnose(text)
        assert (found.failure_type, found.suspects.ranks) == ("process_segfault", [5])
        assert found.first_fault is not None
        assert found.first_fault.node == "rack-b7"
    finally:
        for cached in (labels._by_first, labels._peeled_again, statements.forms):
            cached.cache_clear()


@pytest.mark.parametrize("rank", [1, 2])
def test_one_rank_that_is_asked_for_is_not_blamed_for_the_exit_of_another(
    job: Callable[[str], object], rank: int
) -> None:
    from rerail.assistant.narrow import Narrow
    from rerail.assistant.pipeline import diagnose_paths

    ended = "srun: error: n2: task 2: Segmentation fault (core dumped)\nsrun: error: n1: tasks 0-1: Terminated\n"
    text = "".join(f"{r}: step {s} loss 2.{s}\n" for s in range(3) for r in range(3)) + ended
    found = diagnose_paths([str(job(text))], narrow=Narrow(rank=rank)).diagnosis
    assert found.suspects.ranks == ([2] if rank == 2 else [])


TEED = """\
[default1]:[rank1]: Traceback (most recent call last):
[default1]:[rank1]:   File "/opt/train.py", line 15, in main
[default1]:[rank1]:     {"learning_rate": 0.1}["learning_rat"]
[default1]:[rank1]: KeyError: 'learning_rat'
[default1]:[rank1] INFO step 1 loss 2.9000 step_time 0.1000s
[default1]:[rank1] INFO step 2 loss 2.8000 step_time 0.1000s
[default1]:[rank1] INFO step 3 loss 2.7000 step_time 0.1000s
[default0]:[rank0] INFO step 1 loss 2.9000 step_time 0.1000s
[default0]:[rank0] INFO step 2 loss 2.8000 step_time 0.1000s
[default0]:[rank0] INFO step 3 loss 2.7000 step_time 0.1000s
E1122 15:37:31.857000 3501 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) local_rank: 1 (pid: 3515) of binary: /usr/bin/python
============================================================
/opt/train.py FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-22_15:37:30
  host      : gn-4
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 3515)
  error_file: /opt/logs/attempt_0/1/error.json
  traceback : Traceback (most recent call last):
    File "/opt/train.py", line 15, in main
      {"learning_rate": 0.1}["learning_rat"]
  KeyError: 'learning_rat'

============================================================
"""


def test_a_traceback_in_torchruns_table_is_of_the_rank_that_heads_it() -> None:
    """torchrun copies stdout and stderr side by side: steps may stand behind the traceback that ended them."""
    first = diagnose_texts({"launcher.log": TEED}).diagnosis.first_fault
    assert first is not None
    assert (first.rank, first.node, first.text.strip()) == (1, "gn-4", "KeyError: 'learning_rat'")


def test_of_two_copies_of_a_traceback_the_one_of_its_own_rank_is_cited() -> None:
    own = "".join(line.removeprefix("[default1]:") + "\n" for line in TEED.splitlines()[:4])
    first = diagnose_texts({"launcher.log": TEED, "1/stderr.log": own}).diagnosis.first_fault
    assert first is not None
    assert (first.file, first.line, first.rank) == ("1/stderr.log", 4, 1)


def test_a_fault_of_one_process_is_where_all_others_wait() -> None:
    """A kernel names a host and no rank; the watchdogs of all ranks but one time out."""
    steps = "".join(f"{r}: [rank{r}]: step {s} loss 2.{s}\n" for s in range(1, 4) for r in range(4))
    timed_out = "".join(
        f"{r}: [rank{r}]:[E711 19:42:07.310 ProcessGroupNCCL.cpp:685] [Rank {r}] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=903312, OpType=ALLREDUCE, NumelIn=64, NumelOut=64, Timeout(ms)=600000) ran for 600000 milliseconds "
        "before timing out.\n" for r in (0, 1, 2)
    )  # fmt: skip
    kernel = (
        "--- journalctl -k --since 19:25 (nid002318) ---\n"
        "[98227.644138] NVRM: Xid (PCI:0000:c1:00): 79, pid=118834, name=python3, GPU has fallen off the bus.\n"
    )
    found = diagnose_texts({"job.log": steps + timed_out + kernel}).diagnosis
    assert found.failure_type == "gpu_fallen_off_bus"
    assert (found.suspects.ranks, found.suspects.nodes) == ([3], ["nid002318"])
    without = diagnose_texts({"job.log": steps + kernel}).diagnosis
    assert (without.suspects.ranks, without.suspects.nodes) == ([], ["nid002318"])


def test_a_rank_that_others_miss_has_its_reason_and_its_host() -> None:
    text = "".join(
        f"trainer/{n} host=ip-172-31-4-{20 + n} (2 procs) ranks [{2 * n}, {2 * n + 1}]\n"
        for n in range(3)
    )
    text += (
        "trainer/0 [0]:[E ProcessGroupGloo.cpp:2810] [Rank 0]: Rank 5 failed to pass monitoredBarrier in 120000 ms\n"
        "trainer/0 [0]:RuntimeError: Detected mismatch between collectives on ranks or a rank that left early\n"
    )
    found = diagnose_texts({"train.log": text}).diagnosis
    assert (found.first_fault.rank, found.first_fault.node) == (5, "ip-172-31-4-22")
    assert [why.what for why in found.place] == ["rank 5", "node ip-172-31-4-22"]
    assert all(why.evidence for why in found.place)
