"""Synthetic jobs: one test for each way a job can hang, and for each way not to be fooled."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from rerail.domain.diagnosis import Status
from rerail.knowledge_base.waiting.dumps.judge import judge
from rerail.knowledge_base.waiting.dumps.verdict import Firmness

PIPELINE = {
    "1": ("PP", [0, 1]),
    "2": ("PP", [1, 2]),
    "3": ("PP", [2, 3]),
}
GRID = {  # tensor pairs (0,1) (2,3) (4,5) (6,7), data groups of even and odd ranks
    "10": ("TP", [0, 1]),
    "11": ("TP", [2, 3]),
    "12": ("TP", [4, 5]),
    "13": ("TP", [6, 7]),
    "20": ("DP", [0, 2, 4, 6]),
    "21": ("DP", [1, 3, 5, 7]),
}


def test_status_words_are_those_of_the_diagnosis() -> None:
    assert set(get_args(Firmness)) == {status.value for status in Status}


@pytest.mark.parametrize("active_only", [False, True])
@pytest.mark.parametrize("last", [None, 3])
def test_missing_rank(synthetic: Any, active_only: bool, last: int | None) -> None:
    job = synthetic(4)
    for _ in range(20):
        job.collective()
    job.collective(ranks=[0, 1, 3], done=False)
    verdict = job.verdict(active_only=active_only, last=last)
    assert (verdict.kind, verdict.status) == ("missing_rank", "established")
    assert verdict.culprit_ranks == (2,)
    assert (verdict.collective, verdict.sequence) == ("all_reduce", 21)
    assert verdict.waiting_ranks == (0, 1, 3)


def test_two_culprits_in_different_groups(synthetic: Any) -> None:
    job = synthetic(8, GRID)
    for group in GRID:
        job.collective(group=group)
    job.collective(group="10", ranks=[1], done=False)  # 0 stays away
    job.collective(group="11")
    job.collective(group="12", ranks=[4], done=False)  # 5 stays away
    job.collective(group="13")
    job.collective(group="20", ranks=[2, 6], done=False)
    job.collective(group="21", ranks=[3, 7], done=False)
    verdict = job.verdict()
    assert (verdict.kind, verdict.culprit_ranks) == ("missing_rank", (0, 5))
    assert verdict.status == "established"


def test_cascade_across_groups_ends_at_one_rank(synthetic: Any) -> None:
    job = synthetic(8, GRID)
    for group in GRID:
        job.collective(group=group)
    # 7 stays away from its tensor group; 6 waits for 7; the data groups wait for 6 and 7.
    job.collective(group="13", ranks=[6], done=False)
    for group in ("10", "11", "12"):
        job.collective(group=group)
    job.collective(group="20", ranks=[0, 2, 4], done=False)
    job.collective(group="21", ranks=[1, 3, 5], done=False)
    verdict = job.verdict()
    assert verdict.culprit_ranks == (7,)
    assert verdict.waiting_ranks == (0, 1, 2, 3, 4, 5, 6)


def test_pipeline_chain_of_sends(synthetic: Any) -> None:
    job = synthetic(4, PIPELINE)
    job.collective()
    # 0 waits for 1, 1 waits for 2, 2 waits for 3, 3 waits for nobody.
    job.send(0, 1, "1", sent=False, received=False)
    job.send(1, 0, "1", sent=False, received=True)
    job.send(2, 1, "2", sent=False, received=True)
    job.send(3, 2, "3", sent=False, received=True)
    verdict = job.verdict()
    assert (verdict.kind, verdict.culprit_ranks) == ("missing_rank", (3,))
    assert verdict.collective == "recv"


def test_send_in_a_large_group_is_matched_by_channel(synthetic: Any) -> None:
    job = synthetic(4)
    job.collective()
    job.send(0, 1, sent=True, received=True)
    job.send(1, 2, sent=True, received=True)
    job.send(2, 3, sent=True, received=False)
    verdict = job.verdict()
    assert verdict.culprit_ranks == (3,)


def test_matched_send_held_up_by_a_collective_leads_to_its_culprit(synthetic: Any) -> None:
    job = synthetic(4, {"1": ("TP", [2, 3]), "2": ("PP", [0, 2])})
    job.collective()
    job.collective(group="1", ranks=[2], done=False)  # 3 stays away
    job.send(2, 0, "2", sent=True, received=True)  # behind it on rank 2
    job.send(0, 2, "2", sent=False, received=True)  # 2 also expects something from 0
    verdict = job.verdict()
    assert verdict.culprit_ranks == (3,)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"sizes": [[16]]}, "[[16]]"),
        ({"dtype": "BFloat16"}, "BFloat16"),
        ({"op": "all_gather"}, "all_gather"),
    ],
)
def test_mismatch(synthetic: Any, change: dict[str, Any], what: str) -> None:
    job = synthetic(4)
    job.collective()
    job.collective(ranks=[0, 1, 3], done=False)
    job.collective(ranks=[2], done=False, **change)
    verdict = job.verdict()
    assert (verdict.kind, verdict.status) == ("mismatch", "established")
    assert verdict.culprit_ranks == (2,)
    assert verdict.sequence == 2
    assert verdict.leaf == "rank_divergence"
    assert what in verdict.reason
    assert len(verdict.variants) == 2


def test_skipped_collective_shifts_a_rank_and_is_found_where_it_began(synthetic: Any) -> None:
    job = synthetic(4)
    job.collective()
    job.collective("broadcast", ranks=[0, 1, 2], done=False)  # 3 skips it
    job.collective("all_reduce", done=False)
    job.collective("all_gather", done=False)
    verdict = job.verdict()
    assert (verdict.kind, verdict.culprit_ranks, verdict.sequence) == ("mismatch", (3,), 2)


def test_mismatch_of_two_ranks_accuses_both(synthetic: Any) -> None:
    job = synthetic(2)
    job.collective(ranks=[0], done=False)
    job.collective("barrier", ranks=[1], done=False)
    verdict = job.verdict()
    assert (verdict.kind, verdict.culprit_ranks) == ("mismatch", (0, 1))
    assert verdict.status == "supported"


def test_spelling_variants_and_uneven_all_to_all_are_no_mismatch(synthetic: Any) -> None:
    job = synthetic(4)
    job.collective("_all_gather_base", ranks=[0, 1], done=False)
    job.collective("all_gather", ranks=[2, 3], done=False)
    for rank in range(4):
        job.collective("all_to_all", ranks=[rank], sizes=[[100 + rank, 8]], done=False)
    assert job.verdict().kind == "stuck_in_collective"


def test_different_order_is_a_circle(synthetic: Any) -> None:
    job = synthetic(2, {"1": ("TP", [0, 1]), "2": ("DP", [0, 1])})
    job.collective()
    job.collective(group="1", ranks=[0], done=False)
    job.collective(group="2", ranks=[1], done=False)
    verdict = job.verdict()
    assert (verdict.kind, verdict.culprit_ranks) == ("mismatch", (0, 1))
    assert verdict.leaf == "rank_divergence"


def test_rank_that_went_ahead_alone(synthetic: Any) -> None:
    job = synthetic(4)
    job.collective()
    job.collective(ranks=[1], done=False)
    job.collective(ranks=[1], done=False)
    verdict = job.verdict()
    assert (verdict.kind, verdict.culprit_ranks) == ("mismatch", (1,))
    assert verdict.status == "supported"


def test_gloo_rank_one_ahead_is_a_running_job(synthetic: Any) -> None:
    job = synthetic(4, backend="gloo")
    job.collective()
    job.collective(ranks=[1], done=False)
    verdict = job.verdict()
    assert (verdict.kind, verdict.culprit_ranks) == ("healthy", ())
    assert verdict.status == "hypothesis"


@pytest.mark.parametrize("backend", ["nccl", "gloo"])
def test_one_rank_late_to_notice_completion_is_healthy(synthetic: Any, backend: str) -> None:
    job = synthetic(4, backend=backend)
    for _ in range(5):
        job.collective()
    job.collective(done=[0, 1, 3])
    verdict = job.verdict()
    assert (verdict.kind, verdict.culprit_ranks) == ("healthy", ())


@pytest.mark.parametrize("backend", ["nccl", "gloo"])
def test_all_healthy(synthetic: Any, backend: str) -> None:
    job = synthetic(4, backend=backend)
    for _ in range(5):
        job.collective()
    verdict = job.verdict()
    assert (verdict.kind, verdict.status, verdict.leaf) == ("healthy", "established", None)


def test_gloo_group_without_name_and_members(synthetic: Any) -> None:
    job = synthetic(4, {"1": ("undefined", [0, 1])}, backend="gloo")
    job.collective()
    job.collective(group="1")
    job.collective(group="1", ranks=[0], done=False)
    verdict = job.verdict()
    assert verdict.culprit_ranks == (1,)
    assert verdict.group is not None
    assert verdict.group.ranks == (0, 1)


def test_stalled_device_is_named_beside_the_absent_rank(synthetic: Any) -> None:
    # 0 stays away; 2 entered everything but its device stopped before finishing what others did.
    job = synthetic(4)
    job.collective()
    job.collective(done=[0, 1, 3])
    job.collective(done=[0, 1, 3])
    job.collective(ranks=[1, 2, 3], done=False)
    verdict = job.verdict()
    assert (verdict.kind, verdict.culprit_ranks) == ("missing_rank", (0, 2))


def test_stalled_device_alone(synthetic: Any) -> None:
    job = synthetic(4)
    job.collective(done=[0, 1, 3])
    job.collective(done=[0, 1, 3])
    job.collective(done=False)
    verdict = job.verdict()
    assert (verdict.kind, verdict.culprit_ranks) == ("stuck_in_collective", (2,))
    assert verdict.status == "supported"


def test_all_entered_and_none_finished(synthetic: Any) -> None:
    job = synthetic(4)
    job.collective()
    job.collective(done=False)
    verdict = job.verdict()
    assert (verdict.kind, verdict.culprit_ranks) == ("stuck_in_collective", ())
    assert verdict.sequence == 2


def test_rank_whose_collective_never_started(synthetic: Any) -> None:
    job = synthetic(4)
    job.collective()
    job.collective(ranks=[0, 1, 3], done=False, state="started")
    job.collective(ranks=[2], done=False)
    verdict = job.verdict()
    assert (verdict.kind, verdict.culprit_ranks) == ("stuck_in_collective", (2,))


def test_truncated_dump_of_a_healthy_rank_is_not_blamed(synthetic: Any) -> None:
    job = synthetic(4)
    job.collective()
    job.collective(ranks=[0, 1, 3], done=False)
    verdict = job.verdict(truncated=(1,))
    assert verdict.culprit_ranks == (2,)
    assert [(u.rank, u.file) for u in verdict.unknown_ranks] == [(1, "_dump_1")]


def test_truncated_dump_alone_is_never_blamed(synthetic: Any) -> None:
    job = synthetic(4)
    job.collective()
    job.collective(done=False)
    verdict = job.verdict(truncated=(1,))
    assert (verdict.kind, verdict.culprit_ranks) == ("all_waiting_unknown", ())
    assert verdict.suspect_ranks == (1,)


def test_the_only_rank_without_any_dump_is_named_as_supported(synthetic: Any) -> None:
    job = synthetic(4)
    job.collective()
    job.collective(ranks=[0, 1, 3], done=False)
    verdict = job.verdict(without=(2,))
    assert (verdict.kind, verdict.status) == ("missing_rank", "supported")
    assert verdict.culprit_ranks == (2,)


def test_one_dump_only(synthetic: Any) -> None:
    job = synthetic(4)
    job.collective(done=False)
    verdict = job.verdict(without=(0, 1, 3))
    assert (verdict.kind, verdict.status) == ("all_waiting_unknown", "unknown")
    assert verdict.culprit_ranks == ()
    assert verdict.suspect_ranks == (0, 1, 3)
    assert verdict.world_size == 4


def test_one_idle_dump_says_nothing(synthetic: Any) -> None:
    job = synthetic(4)
    job.collective()
    assert job.verdict(without=(0, 1, 3)).kind == "unknown"


def test_no_dump() -> None:
    verdict = judge([])
    assert (verdict.kind, verdict.status, verdict.world_size) == ("unknown", "unknown", None)


def test_dump_written_before_the_others_went_on_is_unknown(synthetic: Any) -> None:
    job = synthetic(4)
    for _ in range(3):
        job.collective()
    early = job.dump(1)
    for _ in range(3):
        job.collective()
    job.collective(ranks=[0, 1, 3], done=False)
    verdict = judge([job.dump(0), early, job.dump(2), job.dump(3)])
    assert verdict.culprit_ranks == (2,)
    assert [u.rank for u in verdict.unknown_ranks] == [1]


def test_of_two_dumps_of_one_rank_the_newer_counts(synthetic: Any) -> None:
    job = synthetic(3)
    job.collective()
    old = job.dump(1)
    job.collective(ranks=[0, 1], done=False)
    verdict = judge([job.dump(0), old, job.dump(1), job.dump(2)])
    assert verdict.culprit_ranks == (2,)
    assert any("older dump" in e.shows for e in verdict.evidence)


def test_parts_of_a_coalesced_batch_follow_the_batch(synthetic: Any) -> None:
    job = synthetic(2)
    job.collective()
    for finished in (True, False):
        job.send(0, 1, sent=True, received=finished)
        for rank in (0, 1) if finished else (0,):
            job._add(rank, "0", "nccl:coalesced", finished, [[8]], "Float", p2p=True)
    verdict = job.verdict()
    assert verdict.culprit_ranks == (1,)
    assert verdict.sequence == 2


def test_five_hundred_ranks_are_judged_quickly(synthetic: Any) -> None:
    groups = {str(10 + g): ("TP", list(range(8 * g, 8 * g + 8))) for g in range(64)}
    groups |= {str(100 + p): ("DP", list(range(p, 512, 8))) for p in range(8)}
    job = synthetic(512, groups)
    for group in groups:
        job.collective(group=group)
    for group, (name, ranks) in groups.items():
        if name == "TP":
            there = [r for r in ranks if r != 300]
            job.collective(group=group, ranks=there, done=300 not in ranks)
    for group, (name, ranks) in groups.items():
        if name == "DP":
            there = [r for r in ranks if not 296 <= r < 304]
            job.collective(group=group, ranks=there, done=False)
    assert job.verdict().culprit_ranks == (300,)
