"""Tables for notebooks, what changed between two profiles, and traces for Perfetto."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rerail.assistant.cli.localize import localize_command
from rerail.assistant.cli.profiles import change_command, learn_command
from rerail.errors import EvidenceError
from rerail.tools.profiles.tables import change_table, function_table, step_table

DATA = Path(__file__).parents[2] / "data/kineto/dlrm"


def write_job(folder: Path, slow: int | None, world: int = 6, gemm: float = 1000.0) -> None:
    folder.mkdir()
    for rank in range(world):
        events = []
        for step in range(4):
            at = step * 10_000.0
            took = gemm + rank + (800.0 if rank == slow else 0.0)
            rows = [
                (f"ProfilerStep#{step}", "user_annotation", at, 9_000.0), ("gemm_a", "kernel", at, took),
                ("ncclDevKernel_AllReduce_Sum", "kernel", at + took, 5_000.0 - took),
            ]  # fmt: skip
            events += [
                {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "tid": 7}
                for name, cat, ts, dur in rows
            ]
        trace = {"distributedInfo": {"rank": rank, "world_size": world}, "traceEvents": events}
        (folder / f"rank{rank}.json").write_text(json.dumps(trace))


def test_tables_hold_what_a_notebook_needs() -> None:
    frame = function_table(DATA)
    assert sorted(set(frame["rank"])) == list(range(8))
    shares = frame.groupby("rank")["beta"].sum()
    assert ((shares - 1).abs() < 0.01).all()
    assert len(step_table(DATA)) == 8


def test_what_changed_after_a_change_of_code(tmp_path: Path, capsys) -> None:
    write_job(tmp_path / "a", None)
    write_job(tmp_path / "b", None, gemm=1500.0)
    frame = change_table(tmp_path / "a", tmp_path / "b")
    row = frame[frame["function"] == "gemm_a"].iloc[0]
    assert row["ratio"] == pytest.approx(1.5, abs=0.01)
    assert change_command(tmp_path / "a", [tmp_path / "b"], False) == 0
    assert "gemm_a: 1 ms -> 1.5 ms a step" in capsys.readouterr().out
    assert change_command(tmp_path / "a", [tmp_path / "a"], True) == 3


def test_the_named_rank_is_written_for_perfetto(tmp_path: Path, capsys) -> None:
    write_job(tmp_path / "job", slow=4)
    out = tmp_path / "guilty.json"
    assert localize_command([tmp_path / "job"], perfetto=out) == 0
    rows = json.loads(out.read_text())["traceEvents"]
    assert {row["pid"] for row in rows} == {4}
    assert sum(row["ph"] == "X" for row in rows) == 12
    assert min(row["ts"] for row in rows if row["ph"] == "X") == 0
    assert "12 events of 1 rank written" in capsys.readouterr().err


def test_what_slows_all_ranks_is_seen_with_a_healthy_window(tmp_path: Path, capsys) -> None:
    write_job(tmp_path / "well", None)
    write_job(tmp_path / "sick", None, gemm=1600.0)
    boxes = tmp_path / "boxes.json"
    assert learn_command([tmp_path / "well"], boxes) == 0
    assert str(tmp_path / "well") in json.loads(boxes.read_text())["sources"]
    assert localize_command([tmp_path / "sick"]) == 3
    assert localize_command([tmp_path / "sick"], json_output=True, expected=boxes) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["findings"][0]["workers"] == list(range(6))
    assert told["findings"][0]["kind"] == "bad_code_or_config"


def test_boxes_that_are_none_are_refused(tmp_path: Path) -> None:
    write_job(tmp_path / "job", None)
    shutil.copy(tmp_path / "job/rank0.json", tmp_path / "boxes.json")
    with pytest.raises(EvidenceError, match="not the boxes of healthy windows"):
        localize_command([tmp_path / "job"], expected=tmp_path / "boxes.json")
