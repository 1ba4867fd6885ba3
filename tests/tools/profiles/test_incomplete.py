"""Files that an attacker or a broken disk wrote, and jobs of which a part was not read: told, and never healthy."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rerail.errors import EvidenceError
from rerail.tools.localize.findings import Localization
from rerail.tools.localize.localize_paths import localize_paths
from rerail.tools.profiles.read_trace import read_trace
from rerail.tools.profiles.summarise import summarise
from rerail.tools.profiles.summary import summary_row

RANKS = 8
Row = dict[str, Any]


def job(folder: Path, steps: int = 4, world: int = RANKS) -> list[Path]:
    """Write the traces of a healthy job; a world of 0 is not written."""
    for rank in range(RANKS):
        rows = []
        for step in range(steps):
            at = 10_000.0 * step
            rows += [
                ("user_annotation", f"ProfilerStep#{step}", at, 9_900.0),
                ("kernel", "gemm_a", at, 1_000.0 + rank),
                ("kernel", "ncclDevKernel_AllReduce_Sum", at + 1_000 + rank, 4_000.0 - rank),
            ]
        trace = {
            "distributedInfo": {"rank": rank, "world_size": world} if world else {"rank": rank},
            "traceEvents": [
                {"ph": "X", "cat": cat, "name": name, "ts": at, "dur": took, "tid": 7}
                for cat, name, at, took in rows
            ],
        }
        (folder / f"rank{rank}.json").write_text(json.dumps(trace))
    return sorted(folder.iterdir())


def judged(folder: Path) -> Localization:
    return localize_paths([folder], lambda _: None)[0].localization


def test_the_whole_job_is_healthy(tmp_path: Path) -> None:
    job(tmp_path)
    found = judged(tmp_path)
    assert (str(found.outcome), found.missing) == ("healthy", [])


def test_two_of_eight_ranks_are_not_a_healthy_job(tmp_path: Path) -> None:
    for path in job(tmp_path)[2:]:
        path.unlink()
    found = judged(tmp_path)
    assert (str(found.outcome), found.findings) == ("no_reference", [])
    assert any("6 of 8 ranks are missing" in note for note in found.missing)
    assert "among the 2 ranks" in found.missing[-1]


@pytest.mark.parametrize("world", [RANKS, 0])
def test_a_rank_that_cannot_be_read_may_be_the_slow_one(tmp_path: Path, world: int) -> None:
    path = job(tmp_path, world=world)[3]
    path.write_bytes(path.read_bytes()[:300])
    found = judged(tmp_path)
    assert (str(found.outcome), found.findings) == ("no_reference", [])
    assert any("rank3.json" in note for note in found.missing)


def test_another_file_beside_all_ranks_changes_nothing(tmp_path: Path) -> None:
    job(tmp_path)
    (tmp_path / "notes.json.gz").write_bytes(b"")
    found = judged(tmp_path)
    assert str(found.outcome) == "healthy"
    assert any("notes.json.gz" in note for note in found.missing)


def test_what_the_collector_keeps_beside_its_summaries_is_no_profile(tmp_path: Path) -> None:
    job(tmp_path)
    (tmp_path / "window.json").write_text('{"first": 157}')
    assert judged(tmp_path).missing == []


def test_one_step_is_not_a_healthy_job(tmp_path: Path) -> None:
    job(tmp_path, steps=1)
    found = judged(tmp_path)
    assert (str(found.outcome), found.findings) == ("no_reference", [])
    assert "1 step only" in found.missing[-1]


def _set(key: str, value: Any) -> Callable[[Row], Row]:
    return lambda row: row | {key: value}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_set("rank", 10**30), "a rank or world size of 1000"),
        (_set("rank", -3), "a rank or world size of -3"),
        (_set("world", 10**15), "a rank or world size of 1000"),
        (_set("step_s", [float("nan")] * 4), "a time of nan s"),
        (_set("functions", None), "damaged"),
        (_set("rerail_profile", 2), "version 2, this rerail reads 1"),
    ],
    ids=["rank", "negative", "world", "nan", "type", "version"],
)
def test_a_summary_with_impossible_values_is_left_out(
    tmp_path: Path, change: Callable[[Row], Row], said: str
) -> None:
    for path in job(tmp_path):
        row = summary_row(summarise(read_trace(path)))
        path.unlink()
        row = change(row) if row["rank"] == 3 else row
        (tmp_path / f"rank{path.stem[4:]}.profile.json").write_text(json.dumps(row))
    found = judged(tmp_path)
    assert found.findings == []
    assert str(found.outcome) == "no_reference"
    assert any("rank3.profile.json" in note and said in note for note in found.missing)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"traceEvents":' + "[" * 100_000,
        '{"a":' + "[" * 100_000 + "]" * 100_000 + ',"traceEvents":[]}',
        '{"traceEvents":[{"ph":"X","cat":"kernel","name":"k","ts":1e308,"dur":1e308}]}',
    ],
    ids=["deep", "deep events", "deep head", "huge times"],
)
@pytest.mark.parametrize("name", ["rank3.json", "rank3.profile.json"])
def test_a_file_that_no_profiler_writes_is_told(tmp_path: Path, text: str, name: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(EvidenceError, match=r"rank3"):
        judged(tmp_path)


def test_a_rank_beyond_all_numbers_is_taken_from_the_name(tmp_path: Path) -> None:
    path = job(tmp_path)[3]
    row = json.loads(path.read_text())
    row["distributedInfo"] = {"rank": 10**30, "world_size": 10**30}
    path.write_text(json.dumps(row))
    trace = read_trace(path)
    assert (trace.rank, trace.world) == (3, 0)


@pytest.mark.parametrize("begin", [b'{"a":"', b'{"traceEvents":', b'{"traceEvents": [{"name":"'])
def test_a_packed_file_that_unpacks_to_any_size_is_not_read_to_its_end(
    tmp_path: Path, begin: bytes
) -> None:
    with gzip.open(tmp_path / "rank0.json.gz", "wb", 1) as stream:
        stream.write(begin)
        for _ in range(100):
            stream.write(b" " * (1 << 20))
    with pytest.raises(EvidenceError, match=r"64 MB|not a list of events"):
        judged(tmp_path)


def test_bytes_that_are_nothing_are_told(tmp_path: Path) -> None:
    (tmp_path / "core.bin").write_bytes(b"a\r\x00b\r" + random.Random(1).randbytes(10_000))
    with pytest.raises(EvidenceError, match=r"core\.bin holds nothing to localise from"):
        judged(tmp_path)


def test_a_clock_that_goes_on_between_two_steps_is_told(tmp_path: Path) -> None:
    path = job(tmp_path)[3]
    row = json.loads(path.read_text())
    for event in row["traceEvents"][6:]:
        event["ts"] += 5e7
    path.write_text(json.dumps(row))
    found = judged(tmp_path)
    assert found.findings == []
    assert any("rank3.json: 50 s between two of its steps" in note for note in found.missing)
