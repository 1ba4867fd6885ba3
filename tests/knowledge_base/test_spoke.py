"""Who still speaks while the others wait in a collective is whom they wait for."""

from __future__ import annotations

from rerail.assistant.pipeline import diagnose_texts
from rerail.domain.diagnosis import Diagnosis

_TIMEOUT = (
    "[rank{rank}]:[E321 02:07:08.{rank}08271257 ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog caught collective"
    " operation timeout: WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, NumelIn=46, NumelOut=46, Timeout(ms)=600000) ran for"
    " 600004 milliseconds before timing out."
)
_GAVE_UP = [_TIMEOUT.format(rank=rank) for rank in (0, 2, 3, 6)]
_BUSY = "[rank5]: 2025-03-21 01:57:29 sample 90211 has 1048211 tokens, packing falls back to a python loop"


def _diagnosis(*lines: str) -> Diagnosis:
    return diagnose_texts({"train.log": "\n".join([*lines, *_GAVE_UP, ""])}).diagnosis


def test_the_one_rank_that_spoke_in_the_wait_is_named_with_what_it_said() -> None:
    found = _diagnosis("[rank0]: 2025-03-21 01:50:00 epoch 3 begins", _BUSY)

    assert found.suspects.ranks == [5]
    assert found.first_fault is not None and found.first_fault.line == 2
    assert found.failure_type == "nccl_slow_rank_timeout"


def test_of_what_it_said_a_warning_comes_first() -> None:
    warning = _BUSY.replace(" sample", " WARNING sample")
    found = _diagnosis("[rank5]: 2025-03-21 01:57:20 packing batch 1578 with workers", warning)

    assert found.first_fault is not None and found.first_fault.line == 2


def test_two_that_spoke_tell_nothing() -> None:
    found = _diagnosis(_BUSY, "[rank4]: 2025-03-21 01:57:30 cache of 31 files written")

    assert found.suspects.ranks == []


def test_what_several_say_tells_nothing() -> None:
    found = _diagnosis(
        "[rank4]: 2025-03-21 01:57:00 batch 1578 tokenized in 4 ms",
        "[rank5]: 2025-03-21 01:57:01 batch 1578 tokenized in 5 ms",
    )

    assert found.suspects.ranks == []


def test_what_was_said_long_before_the_wait_tells_nothing() -> None:
    assert _diagnosis(_BUSY.replace("01:57:29", "01:40:00")).suspects.ranks == []


def test_without_clocks_the_place_in_the_file_decides() -> None:
    unstamped = "[rank5]: sample 90211 has 1048211 tokens, packing falls back to a python loop"
    last = "[rank2]: waiting for the others"

    assert _diagnosis(last, unstamped).suspects.ranks == [5]
    assert _diagnosis(unstamped, last).suspects.ranks == []


def test_the_first_rank_prints_for_all() -> None:
    others = [_TIMEOUT.format(rank=rank) for rank in (12, 13, 15)]
    text = "\n".join([_BUSY.replace("[rank5]", "[rank0]"), *others, ""])

    assert diagnose_texts({"train.log": text}).diagnosis.suspects.ranks == []


def test_where_few_gave_up_the_others_may_have_been_ended_before_they_said_so() -> None:
    steps = [f"[rank{rank}]: 2025-03-21 01:50:0{rank % 10} shard opened" for rank in range(16)]

    assert _diagnosis(*steps, _BUSY).suspects.ranks == []


def test_of_several_that_did_not_come_one_that_spoke_is_not_singled_out() -> None:
    steps = [f"[rank{rank}]: 2025-03-21 01:50:0{rank} shard opened" for rank in range(8)]
    gave_up = [_TIMEOUT.format(rank=rank) for rank in (1, 2, 3, 4, 6, 7)]
    spoke = "[rank0]: 2025-03-21 01:57:30 metrics uploaded to tracker"
    text = "\n".join([*steps, spoke, *gave_up, ""])

    assert diagnose_texts({"train.log": text}).diagnosis.suspects.ranks == [0, 5]


def test_a_host_of_which_nobody_is_left_is_lost_whoever_spoke_there() -> None:
    ready = [
        f"[rank{rank}]: 2025-03-21 01:50:00 rank={rank} host=gn-0{rank // 4 + 1} ready"
        for rank in range(12)
    ]
    gave_up = [_TIMEOUT.format(rank=rank) for rank in range(8)]
    spoke = "[rank8]: 2025-03-21 01:57:30 checkpoint shard of this node written"
    text = "\n".join([*ready, spoke, *gave_up, ""])
    found = diagnose_texts({"train.log": text}).diagnosis

    assert (found.failure_type, found.suspects.nodes) == ("node_crash", ["gn-03"])


def test_one_that_waits_and_spoke_later_shows_that_the_others_were_not_silent() -> None:
    assert _diagnosis(_BUSY, "[rank3]: 2025-03-21 01:58:00 cache flushed").suspects.ranks == []


def test_what_was_said_in_front_of_a_step_that_ended_tells_nothing() -> None:
    said = "[rank5]: WARNING sample 90211 has 1048211 tokens, packing falls back to a python loop"
    steps = [f"step {n} loss 2.{n}" for n in range(1, 8)]

    assert _diagnosis(*steps, said).suspects.ranks == [5]
    assert _diagnosis(*steps[:5], said, *steps[5:]).suspects.ranks == []
