"""Real dumps: the verdict must name exactly the ranks that were made to fail."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from rerail.assistant.pipeline import diagnose_paths
from rerail.assistant.snapshot import take_snapshot
from rerail.knowledge_base.waiting.dumps.judge import diagnose_dumps, judge
from rerail.log_parsers.flight_recorder.loader import load_dumps
from rerail.log_parsers.flight_recorder.model import Dump, DumpProblem
from rerail.log_parsers.flight_recorder.recognise import looks_like_flight_recorder

DATA = Path(__file__).parents[2] / "data" / "flight_recorder"
MEGATRON = ("gpu_error_2nd", "lock_gil_1st")


def files(name: str) -> list[Path]:
    return sorted(p for p in (DATA / name).iterdir())


@pytest.fixture(scope="module", params=MEGATRON)
def dumps(request: pytest.FixtureRequest) -> list[Dump]:
    loaded = load_dumps(files(request.param))
    assert all(isinstance(d, Dump) for d in loaded)
    return [d for d in loaded if isinstance(d, Dump)]


@pytest.mark.parametrize(("name", "sequence"), [("gpu_error_2nd", 44791), ("lock_gil_1st", 45265)])
def test_megatron_sets_come_out_exactly(name: str, sequence: int) -> None:
    verdict = diagnose_dumps(files(name))
    assert verdict.kind == "missing_rank"
    assert verdict.status == "established"
    assert verdict.culprit_ranks == (9, 14)
    assert (verdict.collective, verdict.sequence) == ("all_to_all", sequence)
    assert verdict.group is not None
    assert verdict.group.description == "EXPERT_MODEL_PARALLEL_GROUP"
    assert verdict.group.ranks == tuple(range(8, 16))
    assert verdict.world_size == 16
    assert verdict.leaf == "nccl_timeout_unexplained"
    assert not verdict.unknown_ranks
    assert {e.rank for e in verdict.evidence} >= {9, 14}


def test_an_incident_of_dumps_shows_all_ranks_that_wait() -> None:
    shown = take_snapshot(diagnose_paths([DATA / "gpu_error_2nd"])).ranks
    parts = {one.rank: one.part for one in shown}
    assert sorted(rank for rank, part in parts.items() if part == "suspect") == [9, 14]
    assert {parts[rank] for rank in parts if rank not in (9, 14)} == {"consequence"}
    assert len(parts) == 16


def test_ranks_come_from_the_content(dumps: list[Dump]) -> None:
    assert {d.rank_from for d in dumps} == {"content"}
    assert sorted(d.rank for d in dumps) == list(range(16))


@pytest.mark.parametrize("kind", ["absent", "truncated"])
def test_a_lost_dump_of_a_healthy_rank_changes_nothing(dumps: list[Dump], kind: str) -> None:
    for lost in set(range(16)) - {9, 14}:
        rest = [d for d in dumps if d.rank != lost]
        problems = [DumpProblem("x", lost, "truncated", "")] if kind == "truncated" else []
        verdict = judge(rest, problems)
        assert verdict.culprit_ranks == (9, 14), lost
        assert [u.rank for u in verdict.unknown_ranks] == [lost]


def test_without_the_culprits_dumps_nobody_is_accused(dumps: list[Dump]) -> None:
    verdict = judge([d for d in dumps if d.rank not in (9, 14)])
    assert verdict.kind == "all_waiting_unknown"
    assert verdict.culprit_ranks == ()
    assert verdict.suspect_ranks == (9, 14)


def test_no_subset_of_dumps_accuses_a_healthy_rank(dumps: list[Dump]) -> None:
    for lost in itertools.combinations(range(16), 2):
        verdict = judge([d for d in dumps if d.rank not in lost])
        assert set(verdict.culprit_ranks) <= {9, 14}, lost
    for start in range(16):
        for size in (1, 3, 5, 8):
            kept = {(start + 3 * i) % 16 for i in range(size)}
            verdict = judge([d for d in dumps if d.rank in kept])
            assert set(verdict.culprit_ranks) <= {9, 14}, kept


@pytest.mark.parametrize("name", ["gloo_hang", "gloo_hang_json"])
def test_gloo_hang(name: str) -> None:
    verdict = diagnose_dumps(files(name))
    assert (verdict.kind, verdict.culprit_ranks) == ("missing_rank", (2,))
    assert (verdict.collective, verdict.sequence) == ("all_reduce", 7)
    assert verdict.status == "supported"  # a gloo dump is a snapshot somebody asked for


def test_gloo_mismatch() -> None:
    verdict = diagnose_dumps(files("gloo_mismatch"))
    assert (verdict.kind, verdict.culprit_ranks) == ("mismatch", (2,))
    assert verdict.leaf == "rank_divergence"
    assert "all_gather" in verdict.reason
    assert "all_reduce" in verdict.reason


def test_gloo_healthy() -> None:
    verdict = diagnose_dumps(files("gloo_healthy"))
    assert (verdict.kind, verdict.culprit_ranks, verdict.leaf) == ("healthy", (), None)


def test_every_real_dump_is_recognised_by_content() -> None:
    for folder in DATA.iterdir():
        for path in folder.iterdir() if folder.is_dir() else ():
            assert looks_like_flight_recorder(path.read_bytes()[:4096], "blob"), path
