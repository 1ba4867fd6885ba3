"""Summaries of real traces, and what is said of those that cannot be compared."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rerail.errors import EvidenceError
from rerail.tools.localize.findings import LocalizeOutcome
from rerail.tools.localize.localize_paths import localize_paths
from rerail.tools.profiles.collect import read_job
from rerail.tools.profiles.matrix import build_matrix
from rerail.tools.profiles.read_trace import read_trace
from rerail.tools.profiles.summarise import summarise
from rerail.tools.profiles.summary import (
    Summary,
    read_summary,
    summary_bytes,
    write_summary,
)

DATA = Path(__file__).parents[2] / "data/kineto"
TRACES = sorted(DATA.rglob("*.json.gz"))


@pytest.mark.parametrize("path", TRACES, ids=lambda p: p.name[:12])
def test_the_shares_of_a_real_trace_fill_the_window_once(path: Path) -> None:
    summary = summarise(read_trace(path))
    assert sum(one.beta for one in summary.functions) == pytest.approx(1.0, abs=0.01)
    for one in summary.functions:
        assert sum(one.by_step_s) == pytest.approx(one.beta * summary.window_s, rel=1e-3, abs=1e-6)
    assert len(summary_bytes(summary)) < 30_000


def test_exposed_communication_of_a_real_trace_by_another_way() -> None:
    """Sweep the same trace microsecond by microsecond: communication without compute beside it."""
    path = DATA / "dlrm/worker1_step_12.1694128201556.pt.trace.json.gz"
    rows = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    step = next(e for e in rows if str(e.get("name")).startswith("ProfilerStep"))
    begin, length = step["ts"], step["dur"]
    busy, moving = np.zeros(length, dtype=bool), np.zeros(length, dtype=bool)
    for e in rows:
        if e.get("ph") == "X" and e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            a, b = e["ts"] - begin, e["ts"] - begin + e["dur"]
            (moving if e["name"].startswith("nccl") else busy)[max(a, 0) : max(b, 0)] = True
    summary = summarise(read_trace(path))
    found = sum(one.beta for one in summary.functions if one.work == "collective")
    assert found == pytest.approx((moving & ~busy).sum() / length, abs=1e-4)


def test_a_summary_reads_back_as_it_was(tmp_path: Path) -> None:
    summary = summarise(read_trace(TRACES[0]), role="stage 1", job="job 7")
    path = write_summary(summary, tmp_path)
    assert path.name == f"rank{summary.rank:06d}.profile.json.gz"
    again = read_summary(path)
    assert summary_bytes(again) == path.read_bytes()
    assert (again.role, again.job, again.rank) == ("stage 1", "job 7", summary.rank)


def test_a_real_imbalance_is_described_and_nobody_is_blamed() -> None:
    (judged,) = localize_paths([DATA / "dlrm"], lambda _: None)
    found = judged.localization
    assert found.outcome is LocalizeOutcome.NO_REFERENCE
    assert found.findings == []
    profile = found.details["profile"]
    assert profile["own_compute_s"]["most"]["rank"] in (1, 3)
    assert profile["longest_step"]["rank"] == 1
    assert any("nobody is blamed" in note for note in found.missing)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda row: row.update(rerail_profile=99), "of version 99"),
        (lambda row: row.pop("rerail_profile"), "not a profile summary"),
        (lambda row: row.pop("functions"), "damaged"),
        (lambda row: row["functions"][0].update(beta=7.0), "beta is 7"),
        (lambda row: row["functions"][0].update(beta="much"), "damaged"),
        (lambda row: row.update(step_s=[-1.0]), "damaged"),
        (lambda row: row.update(functions=None), "damaged"),
    ],
)
def test_a_damaged_summary_is_refused_by_name(tmp_path: Path, change, said: str) -> None:
    path = write_summary(summarise(read_trace(TRACES[0])), tmp_path)
    row = json.loads(gzip.decompress(path.read_bytes()))
    change(row)
    path.write_bytes(gzip.compress(json.dumps(row).encode()))
    with pytest.raises(EvidenceError, match=said) as caught:
        read_summary(path)
    assert path.name in str(caught.value)


def test_a_cut_summary_is_a_named_gap(tmp_path: Path) -> None:
    first = summarise(read_trace(TRACES[0]))
    for rank in range(4):
        write_summary(replace(first, rank=rank, world=4), tmp_path)
    cut = tmp_path / "rank000002.profile.json.gz"
    cut.write_bytes(cut.read_bytes()[:300])
    matrix = read_job(list(tmp_path.iterdir()))
    assert matrix.ranks.tolist() == [0, 1, 3]
    assert any("rank000002" in note for note in matrix.notes)
    assert any("1 of 4 ranks are missing" in note for note in matrix.notes)


def alike() -> list[Summary]:
    first = summarise(read_trace(TRACES[0]))
    return [replace(first, rank=rank, world=4, job="a", source=f"rank{rank}") for rank in range(4)]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"job": "b"}, "different jobs"),
        ({"world": 8}, "different world sizes"),
        ({"first_step": 900}, "different profiled windows"),
        ({"rank": 1}, "rank 1 was already read from rank1"),
    ],
)
def test_profiles_of_different_runs_are_not_compared(change, said: str) -> None:
    rows = alike()
    rows[3] = replace(rows[3], **change)
    with pytest.raises(EvidenceError, match=said):
        build_matrix(rows)


def test_a_rank_without_gpu_events_is_named_and_not_blamed(tmp_path: Path) -> None:
    for rank in range(4):
        events = [
            {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{s}", "ts": s * 1000.0, "dur": 990.0}
            for s in range(4)
        ]  # fmt: skip
        if rank != 2:
            events += [
                {"ph": "X", "cat": "kernel", "name": "gemm", "ts": s * 1000.0 + 5, "dur": 700.0 + rank}
                for s in range(4)
            ]  # fmt: skip
        trace = {"distributedInfo": {"rank": rank, "world_size": 4}, "traceEvents": events}
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(trace))
    (judged,) = localize_paths([tmp_path], lambda _: None)
    assert judged.localization.findings == []
    assert any("ranks 2 have no GPU events" in note for note in judged.localization.missing)


def test_clocks_that_differ_by_hours_change_nothing(tmp_path: Path) -> None:
    path = DATA / "trace_filter__sampled_rank-0.json.gz"
    row = json.loads(gzip.decompress(path.read_bytes()))
    for event in row["traceEvents"]:
        if "ts" in event:
            event["ts"] += 7_200_000_000
    later = tmp_path / "rank0.json"
    later.write_text(json.dumps(row))
    now, then = summarise(read_trace(path)), summarise(read_trace(later))
    assert summary_bytes(replace(then, source=now.source)) == summary_bytes(now)
