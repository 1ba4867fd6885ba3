"""Logs read in shards are judged as if they had been read here: any split, any order, any runner."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rerail.assistant.cli.scan import scan_command
from rerail.assistant.pipeline import diagnose_paths, scan_plan
from rerail.domain.diagnosis import Diagnosis, Outcome, Status
from rerail.errors import EvidenceError
from rerail.log_parsers import tallies
from rerail.log_parsers.collect import scanner_for
from rerail.log_parsers.scan_work import LogWork, log_work
from rerail.log_parsers.sources import Source
from rerail.log_parsers.survey import survey
from rerail.log_parsers.survey_rows import survey_of, survey_row
from rerail.tools.shards.runners import run_processes
from rerail.tools.shards.work import merge_shards, merged_bytes, scan_shard

DATA = Path(__file__).parents[1] / "data"
HUNG = DATA / "faultlab/hang_one_rank"
LINES = (
    b"[rank0]: step 10 loss 2.5 step_time 0.1s", b"[rank1]: RuntimeError: CUDA out of memory",
    b"node7: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", b"", b"\xff\xfe \xed\xa0\x80",
    "[rank12]: pr\u00fcfe \U0001f642 token=abc".encode(), b"Traceback (most recent call last):",
)  # fmt: skip


def whole_of(work: LogWork, files: list[str]) -> bytes:
    return merged_bytes(work, merge_shards(work, [scan_shard(work, files, 0, 1)]))


def judged(path: Path) -> dict[str, Any]:
    found: Diagnosis = diagnose_paths([path]).diagnosis
    return found.model_dump(exclude={"elapsed_s"})


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(st.lists(st.sampled_from(LINES), max_size=6), min_size=1, max_size=6),
    st.integers(1, 8), st.randoms(),
)  # fmt: skip
def test_any_split_and_order_is_the_same(
    tmp_path_factory: pytest.TempPathFactory, texts: list[list[bytes]], count: int, random: Any
) -> None:
    folder = tmp_path_factory.mktemp("job")
    for number, lines in enumerate(texts):
        (folder / f"rank{number}.log").write_bytes(b"\n".join([*lines, b"end"]))
    work, files = log_work([folder], scan_plan())
    parts = [scan_shard(work, files, n, count) for n in range(count)]
    random.shuffle(parts)
    whole = whole_of(work, files)
    assert merged_bytes(work, merge_shards(work, parts)) == whole
    out = tmp_path_factory.mktemp("out")
    (out / "job.logs.jsonl.gz").write_bytes(whole)
    assert judged(out) == judged(folder)


@pytest.mark.parametrize(
    "job", ["faultlab/hang_one_rank", "faultlab/disk_full_sharded", "slurm/nodedown"]
)
def test_recorded_jobs_are_judged_alike(tmp_path: Path, job: str) -> None:
    folder = DATA / job
    for number in range(3):
        scan_command([folder], tmp_path, f"{number}/3", 1, None, logs=True)
    assert judged(tmp_path) == judged(folder)


def test_both_ways_of_reading_give_the_same_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "job.log"
    with log.open("wb") as stream:
        for number in range(2_500):
            stream.write(
                b"[rank%d]: 2026-01-01 00:%02d:%02d step %d loss 1.5\n"
                % (number % 64, number // 60 % 60, number % 60, number)
            )
            stream.write(b"\x1b[31mnode%d:\x1b[0m NCCL WARN timeout %d\n" % (number % 9, number))
            stream.write(LINES[number % len(LINES)] + b"\n")
    plan = scan_plan()
    source = Source(log, "job.log", size=log.stat().st_size)
    rows = []
    for seen in (0, 1 << 40):
        monkeypatch.setattr(tallies, "_seen_bytes", seen)
        found = survey(source, plan.signatures, scanner_for(plan, None), chunk_size=1 << 18)
        rows.append(json.dumps(survey_row(found), sort_keys=True))
    assert tallies.vectors_at_hand()
    # Compared without pytest's own: a difference of megabytes would be drawn for a minute.
    same = rows[0] == rows[1]
    assert same
    back = survey_of(json.loads(rows[0]), "here")
    again = json.dumps(survey_row(back), sort_keys=True) == rows[0]
    assert again


def test_a_missing_shard_is_named_and_nobody_is_blamed_for_it(tmp_path: Path) -> None:
    for number in (0, 2):
        scan_command([HUNG], tmp_path, f"{number}/3", 1, None, logs=True)
    found = diagnose_paths([tmp_path]).diagnosis
    assert any("shard 1 of 3" in one.what for one in found.missing)
    assert any("--shard 1/3" in one.how_to_get for one in found.missing)
    assert found.status is not Status.ESTABLISHED
    assert found.suspects.ranks == []


def test_what_looks_healthy_is_open_while_a_shard_is_missing(tmp_path: Path) -> None:
    logs, out = tmp_path / "logs", tmp_path / "out"
    logs.mkdir()
    for rank in range(4):
        steps = "".join(f"[rank{rank}]: step {n} loss 2.{n}\n" for n in range(40))
        (logs / f"rank{rank}.log").write_text(steps)
    assert judged(logs)["outcome"] is Outcome.NO_FAILURE
    scan_command([logs], out, "0/2", 1, None, logs=True)
    found = diagnose_paths([out]).diagnosis
    assert (found.outcome, found.status) == (Outcome.INCONCLUSIVE, Status.UNKNOWN)
    scan_command([logs], out, "1/2", 1, None, logs=True)
    assert judged(out) == judged(logs)


def test_shards_that_saw_other_files_are_told(tmp_path: Path) -> None:
    logs, out = tmp_path / "logs", tmp_path / "out"
    logs.mkdir()
    for number in range(4):
        (logs / f"rank{number}.log").write_text("step 1 loss 2.0\n" * 4)
    scan_command([logs], out, "0/2", 1, None, logs=True)
    (logs / "rank00.log").write_text("step 1 loss 2.0\n")
    scan_command([logs], out, "1/2", 1, None, logs=True)
    found = diagnose_paths([out]).diagnosis
    assert any("different lists of files" in one.what for one in found.missing)


def test_other_rules_damage_and_digests_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan_command([HUNG], tmp_path, None, 1, None, logs=True)
    (file,) = tmp_path.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with pytest.raises(EvidenceError, match="a digest counts all lines"):
        diagnose_paths([tmp_path], mine=True)
    whole = file.read_bytes()
    file.write_bytes(whole[:-200])
    cut = diagnose_paths([tmp_path, HUNG / "torchrun.log"]).diagnosis
    assert any("left out" in one.what for one in cut.missing)
    with pytest.raises(EvidenceError, match="left out"):
        diagnose_paths([tmp_path])
    file.write_bytes(whole)
    monkeypatch.setattr("rerail.log_parsers.scan_work.work_name", lambda _: "logs 0")
    with pytest.raises(EvidenceError, match="scanned with other rules"):
        diagnose_paths([tmp_path])


def test_nothing_to_scan_is_said(tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match="no log files"):
        scan_command([tmp_path], tmp_path / "out", None, 1, None, logs=True)
    with pytest.raises(EvidenceError, match="standard input"):
        scan_command([Path("-")], tmp_path / "out", None, 1, None, logs=True)


def test_processes_give_the_same_bytes() -> None:
    work, files = log_work([HUNG], scan_plan())
    done = run_processes(work, files, 2, jobs=2)
    assert merged_bytes(work, merge_shards(work, list(done.values()))) == whole_of(work, files)
