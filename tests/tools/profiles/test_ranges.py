"""A trace read in ranges has the columns of the whole, wherever the cuts fall."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rerail.assistant.cli import scan as scan_module
from rerail.assistant.cli.scan import scan_command
from rerail.errors import EvidenceError
from rerail.tools.profiles import ranges
from rerail.tools.profiles.ranges import RangeWork, parts_of, ranges_of, read_range, units_of
from rerail.tools.profiles.read_trace import join_parts, read_trace
from rerail.tools.profiles.summary import SHARD_SUFFIX
from rerail.tools.shards import runners
from rerail.tools.shards.runners import run_processes

REAL = sorted((Path(__file__).parents[2] / "data/kineto/dlrm").glob("*.gz"))[0]
NASTY = [
    {"ph": "X", "cat": "cpu_op", "name": 'a}, {"ph": "X"', "ts": 1, "dur": 2, "tid": 1, "args": {}},
    {"ph": "M", "name": "process_name", "args": {"list": [{"a": 1}, {"b": 2}]}},
    {"ph": "X", "cat": "kernel", "name": "k\u00fc", "ts": 4.5, "dur": 1, "tid": "s 7",
     "args": {"In msg nelems": 8, "dtype": "Float", "Process Group Name": "0", "Group size": 2}},
    {"ph": "X", "cat": "gpu_memcpy", "name": "copy", "ts": 7, "dur": 1, "tid": 2, "args": {"bytes": 9}},
]  # fmt: skip


def columns(trace: Any) -> list[Any]:
    named = [trace.names[n] for n in trace.name]
    rest = [trace.kind, trace.start_us, trace.dur_us, trace.lane, trace.bytes, trace.group]
    return [trace.rank, trace.world, trace.host, trace.groups, named, [np.asarray(c).tobytes() for c in rest]]  # fmt: skip


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("real") / REAL.name.removesuffix(".gz")
    path.write_bytes(gzip.decompress(REAL.read_bytes()))
    return path


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(st.sampled_from(NASTY), max_size=9), st.integers(1, 400), st.booleans(),
    st.sampled_from([None, 1]),
)  # fmt: skip
def test_any_cuts_give_the_same_columns(
    tmp_path_factory: pytest.TempPathFactory, events: list[Any], size: int, bare: bool,
    indent: int | None,
) -> None:  # fmt: skip
    path = tmp_path_factory.mktemp("t") / "rank3.json"
    head = {"host_name": "n1", "devices": [{"id": 0}, {"id": 1}]}
    tail = {"distributedInfo": {"rank": 3, "world_size": 8}}
    whole: Any = events if bare else {**head, "traceEvents": events, **tail}
    path.write_text(json.dumps(whole, indent=indent))
    end = path.stat().st_size
    cuts = [(at, min(at + size, end)) for at in range(0, end, size)]
    parts = [read_range(path, begin, stop, piece=64) for begin, stop in cuts]
    assert columns(join_parts(path, parts)) == columns(read_trace(path))


@pytest.mark.parametrize("size", [100_000, 333_333])
def test_a_real_trace_in_ranges_is_the_same(real: Path, size: int) -> None:
    cuts = ranges_of(real, size)
    assert len(cuts) > 2
    rows = RangeWork().scan(units_of(str(real), cuts))
    again = json.loads(json.dumps(rows))
    joined = join_parts(real, parts_of(str(real), cuts, again))
    assert columns(joined) == columns(read_trace(real))


def test_scan_reads_a_large_trace_in_ranges_with_the_same_bytes(
    real: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan_command([real], tmp_path / "whole", None, 1, None)
    cut = ranges_of(real, 400_000)
    monkeypatch.setattr(scan_module, "_large", lambda _: {str(real): cut})
    monkeypatch.setattr(
        runners, "run_ray", lambda work, files, n, _: run_processes(work, files, n, 2)
    )
    scan_command([real], tmp_path / "cut", None, 1, "auto")
    name = f"job{SHARD_SUFFIX}"
    assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_range_that_nobody_brought_back_is_named(real: Path) -> None:
    cuts = ranges_of(real, 400_000)
    rows = RangeWork().scan(units_of(str(real), cuts)[:-1])
    with pytest.raises(EvidenceError, match=f"nobody brought back bytes {cuts[-1][0]}"):
        parts_of(str(real), cuts, rows)
    left = ranges.summary_of_ranges(str(real), cuts, rows)
    assert left["left_out"] == str(real)


def test_small_and_packed_traces_are_read_whole(real: Path) -> None:
    assert ranges_of(real) == []
    assert ranges_of(REAL, 1000) == []


def test_a_cut_off_trace_is_told(real: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut.json"
    path.write_bytes(real.read_bytes()[:-5000])
    row = ranges.summary_of_ranges(
        str(path), cuts := ranges_of(path, 400_000), RangeWork().scan(units_of(str(path), cuts))
    )
    assert "cut off" in row["why"]
