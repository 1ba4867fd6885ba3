"""Whom all others wait for: one engine, whoever tells of the waiting."""

from __future__ import annotations

import pytest

from rerail.assistant.pipeline import diagnose_texts
from rerail.domain.diagnosis import Outcome
from rerail.knowledge_base.waiting.engine import How, Waiting
from rerail.knowledge_base.waiting.read import Form, forms

WATCHDOG = (
    "[rank{r}]:[E301 02:{minute:02}:00 ProcessGroupNCCL.cpp:632] [Rank {r}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn=1048576, NumelOut=1048576, Timeout(ms)=600000) ran for 600029 "
    "milliseconds before timing out.\n"
)


@pytest.mark.parametrize("form", forms(), ids=lambda form: form.id)
def test_a_wording_holds_on_its_examples(form: Form) -> None:
    for text in form.matches:
        head, _, below = text.partition("\n")
        slots = form.slots(head)
        assert slots is not None
        if form.below is not None:
            rows = [form.below.search(row) for row in below.splitlines()]
            assert rows
            assert all(row is not None and row["ranks"] for row in rows)
        elif form.tells == "missing":
            assert form.whom or slots.get("ranks") or slots["came"]


def waiting(text: str) -> Waiting:
    found = diagnose_texts({"job.log": text}).verdict.waiting
    assert found is not None
    return found


def timeouts(calls: dict[int, tuple[int, str]]) -> str:
    return "".join(
        WATCHDOG.format(r=r, minute=10, seq=seq, op=op) for r, (seq, op) in calls.items()
    )


STEPS = "".join(f"[rank{r}]: step {s} loss 2.{s}\n" for s in range(1, 5) for r in range(4))
MISSING_3 = {
    How.ABSENT: timeouts({r: (118, "ALLREDUCE") for r in (0, 1, 2)}),
    How.ANOTHER_CALL: timeouts({0: (118, "ALLREDUCE"), 1: (118, "ALLREDUCE"), 2: (118, "ALLREDUCE"),
                                3: (118, "BROADCAST")}),
    How.BEHIND: timeouts({r: (118, "ALLREDUCE") for r in range(4)}) + "".join(
        f"[rank{r}]:[E301 02:10:00 ProcessGroupNCCL.cpp:1000] [PG ID 0 PG GUID 0(default_pg) Rank {r}] failure detected by "
        f"watchdog at work sequence id: 118 PG status: last enqueued work: {n}, last completed work: 117\n"
        for r, n in ((0, 120), (1, 120), (2, 120), (3, 118))),
    How.NAMED: "[rank0]: RuntimeError: [Rank 0]: Rank 3 failed to pass monitoredBarrier in 300000 ms\n",
}  # fmt: skip


@pytest.mark.parametrize("how", MISSING_3)
def test_the_same_rank_is_found_by_each_kind_of_evidence(how: How) -> None:
    found = waiting(STEPS + MISSING_3[how]).found
    assert found is not None
    assert (found.how, found.ranks) == (how, (3,))


def test_who_is_named_by_others_is_believed_before_who_is_only_silent() -> None:
    found = waiting(
        STEPS + MISSING_3[How.NAMED] + timeouts({r: (118, "ALLREDUCE") for r in (0, 1, 3)})
    )
    assert found.suspects == (3,)
    assert found.by(How.ABSENT) is not None


def test_most_ranks_cannot_be_the_missing_ones() -> None:
    told = "".join(
        f"[RankMonitorServer:{r}] Did not get subsequent heartbeat. Waited 45.00 seconds.\n" for r in range(3)
    )  # fmt: skip
    found = diagnose_texts({"job.log": STEPS + told}).verdict.waiting
    assert found is None or found.by(How.NAMED) is None


def test_the_order_of_the_lines_does_not_matter() -> None:
    lines = MISSING_3[How.BEHIND].splitlines(keepends=True)
    a, b = waiting(STEPS + "".join(lines)), waiting(STEPS + "".join(reversed(lines)))
    assert a.findings == b.findings


def test_who_stood_still_before_all_others_gave_up_is_the_one():
    waited = (
        "[rank{r}]:[E911 07:51:33.0{r}0410022 ProcessGroupNCCL.cpp:632] [Rank {r}] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=30418, OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576, Timeout(ms)=1800000) "
        "ran for 1800009 milliseconds before timing out.\n"
    )
    stuck = (
        "[rank5]:[E911 {at}.114820011 ProcessGroupNCCL.cpp:1746] [PG ID 0 PG GUID 0(default_pg) Rank 5] Heartbeat "
        "monitor timed out! Process will be terminated after dumping debug info. workMetaList_.size()=3\n"
    )
    others = "".join(waited.format(r=r) for r in range(5))
    early = diagnose_texts({"a.log": stuck.format(at="07:31:09") + others}).diagnosis
    assert (early.failure_type, early.suspects.ranks) == ("nccl_watchdog_heartbeat", [5])
    # Behind the time-outs it is what a process that waits in vain does as well.
    late = diagnose_texts({"a.log": others + stuck.format(at="08:01:33")}).diagnosis
    assert late.failure_type == "nccl_timeout_unexplained"


@pytest.mark.parametrize(("minute", "late"), [(12, (5,)), (10, (1,))])
def test_who_lost_the_others_long_after_they_gave_up_was_the_one_they_waited_for(
    minute: int, late: tuple[int, ...]
) -> None:
    lost = (
        f"[rank5]:[E301 02:{minute:02}:09 ProcessGroupNCCL.cpp:542] [Rank 5] Collective WorkNCCL(SeqNum=81, OpType=ALLREDUCE, "
        "NumelIn=1, NumelOut=1, Timeout(ms)=600000) raised the following async exception: NCCL error: remote process "
        "exited or there was a network error, NCCL version 2.21.5\n"
    )
    found = waiting(timeouts({r: (81, "ALLREDUCE") for r in (0, 2, 3, 4, 6, 7)}) + lost)
    assert found.suspects == late


_STALL = (
    "[1,0]<stderr>:[2022-02-10 11:02:41.882301: W /tmp/horovod/common/stall_inspector.cc:107] One or more tensors were"
    " submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for"
    " more than 60 seconds.\n[1,0]<stderr>:Missing ranks:\n[1,0]<stderr>:12: [grads_0_0]\n"
)
_EPOCHS = "[1,0]<stdout>:Saving the model to /results\n" + "".join(
    f"[1,0]<stdout>:Epoch {n}/3 - loss: {4 - n}.1120 - accuracy: 0.3110\n" for n in (1, 2, 3)
)


def test_a_stall_after_which_those_that_waited_go_on_is_no_failure() -> None:
    passed = diagnose_texts({"a.log": _STALL + _EPOCHS}).diagnosis
    stuck = diagnose_texts({"a.log": _EPOCHS + _STALL}).diagnosis

    assert passed.outcome is not Outcome.FAILURE
    assert (stuck.outcome, stuck.suspects.ranks) == (Outcome.FAILURE, [12])


_DIFFERENT = (
    "[rank{own}]: RuntimeError: Detected mismatch between collectives on ranks. Rank {own} is running collective:"
    " CollectiveFingerPrint(SequenceNumber=81, OpType=ALLREDUCE, TensorShape=[1]), but Rank 5 is running collective:"
    " CollectiveFingerPrint(SequenceNumber=81, OpType=BARRIER).Collectives differ in the following aspects: Op type\n"
)


def test_whom_several_reports_of_different_calls_have_in_common_is_the_one() -> None:
    text = "".join(_DIFFERENT.format(own=own) for own in (4, 0))

    assert diagnose_texts({"a.log": text}).diagnosis.suspects.ranks == [5]


def test_who_did_not_come_to_a_barrier_counts_before_who_was_gone_behind_it() -> None:
    text = (
        "[pod/m-0/jax] XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: orbax:save:72::1. This usually happens\n"
        "[pod/m-0/jax] The first task at the barrier: /job:jax_worker/replica:0/task:0. Some timed out task names:\n"
        "[pod/m-0/jax] /job:jax_worker/replica:0/task:3\n"
        "[pod/m-1/jax] UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats):\n"
        "[pod/m-1/jax] /job:jax_worker/replica:0/task:0\n"
    )
    found = diagnose_texts({"a.log": text}).diagnosis

    assert (found.failure_type, found.suspects.ranks) == ("nccl_timeout_unexplained", [3])
    assert found.first_fault is not None
    assert found.first_fault.node is None


@pytest.mark.parametrize("front", ["", "b4109: "])
@pytest.mark.parametrize("file", ["a.log", "b4109/mpirun.log"])
@pytest.mark.parametrize("told", [True, False])
def test_mpirun_names_the_node_whose_daemon_it_lost(front: str, file: str, told: bool) -> None:
    rows = [
        "ORTE has lost communication with a remote daemon.",
        "  HNP daemon   : [[43015,0],0] on node b4109",
        *(["  Remote daemon: [[43015,0],5] on node b4124"] if told else []),
    ]
    text = "[1,0]<stdout>:Step 4100, loss: 1.9921\n" + "".join(f"{front}{row}\n" for row in rows)
    found = diagnose_texts({file: text}).diagnosis

    assert found.suspects.nodes == (["b4124"] if told else [])
    assert found.first_fault is not None
    assert found.first_fault.node in ({"b4124"} if told else {None})


@pytest.mark.parametrize(
    ("calls", "ranks"),
    [
        ({0: (9611, "ALLREDUCE"), 2: (9611, "ALLREDUCE"), 5: (9611, "ALLREDUCE"), 7: (640, "ALLREDUCE")}, (7,)),
        ({0: (9611, "ALLREDUCE"), 2: (9611, "ALLREDUCE"), 5: (9611, "ALLREDUCE"), 7: (9610, "ALLREDUCE")}, None),
        ({0: (9611, "ALLREDUCE"), 2: (9611, "ALLREDUCE"), 5: (640, "ALLREDUCE"), 7: (640, "ALLREDUCE")}, None),
    ],
)  # fmt: skip
def test_the_one_rank_that_waits_many_collectives_away_made_other_calls(
    calls: dict[int, tuple[int, str]], ranks: tuple[int, ...] | None
) -> None:
    found = waiting(timeouts(calls)).by(How.ANOTHER_CALL)
    assert (found.ranks if found is not None else None) == ranks


@pytest.mark.parametrize(("enqueued", "ranks"), [(118, (2,)), (119, None), (240, None)])
def test_a_rank_whose_own_status_ends_before_what_its_group_waits_in_is_behind(
    enqueued: int, ranks: tuple[int, ...] | None
) -> None:
    others = "".join(
        f"[rank{r}]:[E] [PG ID 4 PG GUID 17(dp_1) Rank {m}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=119, "
        "OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600021 milliseconds before timing out.\n"
        for m, r in ((0, 0), (2, 4), (3, 6))
    )
    own = (
        "[rank2]:[E] [PG ID 4 PG GUID 17(dp_1) Rank 1] Received a dump signal due to a collective timeout from rank 0 and we "
        f"will try our best to dump the debug info. Last enqueued NCCL work: {enqueued}, last completed NCCL work: 118.\n"
    )
    found = waiting(others + own).by(How.BEHIND)
    assert (found.ranks if found is not None else None) == ranks
