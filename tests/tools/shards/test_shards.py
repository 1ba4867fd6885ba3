"""Any split, any order and any runner give the same bytes; who dies is one missing shard."""

from __future__ import annotations

import gzip
import multiprocessing.spawn
import os
import stat
import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rerail.assistant.cli.scan import scan_command
from rerail.assistant.pipeline import scan_plan
from rerail.errors import EvidenceError, UsageError
from rerail.evals.cluster.lab import Lab, cannot_run
from rerail.evals.patterns.runners import SHARDS, run_all
from rerail.log_parsers.scan_work import log_work
from rerail.tools.localize.localize_paths import localize_paths
from rerail.tools.profiles.collect import read_job
from rerail.tools.profiles.ranges import RangeWork, ranges_of, summary_of_ranges, units_of
from rerail.tools.profiles.shard_work import ProfileWork
from rerail.tools.shards.runners import run_processes, run_ray
from rerail.tools.shards.work import merge_shards, merged_bytes, scan_shard, shard_of

TRACES = sorted(str(p) for p in (Path(__file__).parents[2] / "data/kineto/dlrm").glob("*.gz"))
LOGS = Path(__file__).parents[2] / "data/faultlab/hang_one_rank"
WORK = ProfileWork()
WHOLE = merged_bytes(WORK, merge_shards(WORK, [scan_shard(WORK, TRACES, 0, 1)]))


@dataclass(frozen=True)
class Lengths:
    """Work that dies on files called so."""

    name: str = "lengths"

    def scan(self, files: Sequence[str]) -> list[Any]:
        if "dies" in files:
            os._exit(9)
        if "breaks" in files:
            _write_half_an_answer()
        return [[file, len(file)] for file in files]

    def key(self, row: Any) -> Any:
        return row[0]


def _write_half_an_answer() -> None:
    """Promise 1,000 bytes to whoever listens to this process, write three and die."""
    for number in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                os.write(number, struct.pack("!i", 1000) + b"abc")
    os._exit(9)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.text("abc", max_size=4), unique=True, min_size=1, max_size=12),
    st.integers(1, 9), st.randoms(),
)  # fmt: skip
def test_any_split_and_order_is_the_same(files: list[str], count: int, random: Any) -> None:
    work = Lengths()
    parts = [scan_shard(work, files, n, count) for n in range(count)]
    assert sorted(f for n in range(count) for f in shard_of(files, n, count)) == sorted(files)
    random.shuffle(parts)
    one = merged_bytes(work, merge_shards(work, [scan_shard(work, files, 0, 1)]))
    assert merged_bytes(work, merge_shards(work, parts)) == one
    halves = [merged_bytes(work, merge_shards(work, parts))]
    assert merged_bytes(work, merge_shards(work, halves)) == one


@pytest.mark.parametrize("count", [2, 5])
def test_real_traces_in_processes_give_the_same_bytes(count: int) -> None:
    done = run_processes(WORK, TRACES, count, jobs=2)
    assert merged_bytes(WORK, merge_shards(WORK, list(done.values()))) == WHOLE


def test_a_dead_worker_is_one_missing_shard() -> None:
    done = run_processes(Lengths(), ["a", "dies", "x"], 3, jobs=2)
    assert sorted(done) == [0, 2]
    merged = merge_shards(Lengths(), list(done.values()))
    assert merged.missing == ((1, 3),)
    assert [row[0] for row in merged.rows] == ["a", "x"]


def test_workers_that_die_before_they_read_their_work_are_missing_shards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """More than a pipe holds is sent to each, which nobody would ever take."""
    monkeypatch.setattr(multiprocessing.spawn, "_python_exe", b"/bin/false")
    names = [f"{n:0100d}" for n in range(10_000)]
    assert run_processes(Lengths(), names, 2, jobs=2) == {}


def test_a_worker_that_dies_in_the_middle_of_its_answer_is_a_missing_shard() -> None:
    done = run_processes(Lengths(), ["a", "breaks", "x"], 3, jobs=2)
    assert sorted(done) == [0, 2]


def test_a_missing_shard_is_told_by_localize(tmp_path: Path) -> None:
    for number in (0, 2):
        scan_command([Path(t) for t in TRACES], tmp_path, f"{number}/3", 1, None)
    (judged,) = localize_paths([tmp_path], lambda _: None)
    assert any("shard 1 of 3 is missing" in note for note in judged.localization.missing)
    assert any("3 of 8 ranks are missing" in note for note in judged.localization.missing)
    assert judged.localization.findings == []


def test_a_cut_shard_and_an_unreadable_trace_are_named(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text('{"traceEvents": [')
    out = tmp_path / "out"
    scan_command([Path(t) for t in TRACES] + [tmp_path / "bad.json"], out, None, 1, None)
    scan_command([Path(t) for t in TRACES], out, "0/1", 1, None)
    cut = next(out.glob("shard*"))
    cut.write_bytes(cut.read_bytes()[:100])
    notes = read_job(list(out.iterdir())).notes
    assert any("bad.json" in note for note in notes)
    assert any(cut.name in note for note in notes)


def test_shards_of_different_splits_are_not_mixed() -> None:
    parts = [scan_shard(Lengths(), ["a", "b"], 0, 2), scan_shard(Lengths(), ["a", "b"], 1, 3)]
    with pytest.raises(EvidenceError, match="different splits"):
        merge_shards(Lengths(), parts)


@pytest.mark.parametrize("shard", ["3", "4/4", "-1/2", "a/b"])
def test_what_is_no_shard_is_refused(tmp_path: Path, shard: str) -> None:
    with pytest.raises(UsageError, match="is no shard"):
        scan_command([Path(TRACES[0])], tmp_path, shard, 1, None)


@pytest.mark.nightly  # Ray alone takes 5 to 40 s to start, and does not where the machine is busy
def test_ray_tasks_give_the_same_bytes(tmp_path: Path) -> None:
    ray = pytest.importorskip("ray")
    plain = tmp_path / "rank0.json"
    plain.write_bytes(gzip.decompress(Path(TRACES[0]).read_bytes()))
    cuts = ranges_of(plain, 400_000)
    logs, files = log_work([LOGS], scan_plan())
    ray.init(
        num_cpus=2, object_store_memory=80_000_000, include_dashboard=False, log_to_driver=False
    )
    try:
        done = run_ray(WORK, TRACES, 4, "auto")
        read = run_ray(logs, files, 3, "auto")
        ranges = run_ray(RangeWork(), units_of(str(plain), cuts), len(cuts), "auto")
    finally:
        ray.shutdown()
    assert merged_bytes(WORK, merge_shards(WORK, list(done.values()))) == WHOLE
    parts = merge_shards(RangeWork(), list(ranges.values())).rows
    assert summary_of_ranges(str(plain), cuts, parts) == WORK.scan([str(plain)])[0]
    one = merged_bytes(logs, merge_shards(logs, [scan_shard(logs, files, 0, 1)]))
    assert merged_bytes(logs, merge_shards(logs, list(read.values()))) == one


@pytest.mark.nightly
@pytest.mark.slurm
def test_all_runners_on_one_two_and_four_nodes_give_the_same_bytes() -> None:
    reason = cannot_run()
    if reason:
        pytest.skip(reason)
    rows = run_all(Path(TRACES[0]).parent, LOGS.parent, slurm=True, ray=True)
    assert {row.runner for row in rows} >= {"processes", "Ray", "Slurm, 4 nodes"}
    assert [row for row in rows if not row.same or row.shards != SHARDS] == []


@pytest.mark.slurm
@pytest.mark.slow
def test_srun_gives_the_same_bytes(tmp_path: Path) -> None:
    reason = cannot_run()
    if reason:
        pytest.skip(reason)
    import sys

    program = Path(sys.executable).with_name("rerail")
    logs, files = log_work([LOGS], scan_plan())
    read = merged_bytes(logs, merge_shards(logs, [scan_shard(logs, files, 0, 1)]))
    works: list[tuple[Any, str, bytes, list[str]]] = [
        (WORK, str(Path(TRACES[0]).parent), WHOLE, []), (logs, str(LOGS), read, ["--logs"]),
    ]  # fmt: skip
    with Lab(nodes=2) as lab:
        for work, folder, whole, flag in works:
            out = tmp_path / work.name.split()[0]
            command = (str(program), "scan", folder, "--out", str(out), *flag)
            lab.run("srun", "-N", "2", "-n", "2", "--overcommit", *command)
            parts = [path.read_bytes() for path in sorted(out.glob("shard-*-of-00002.*"))]
            assert len(parts) == 2
            assert merged_bytes(work, merge_shards(work, parts)) == whole
