"""Reading Kineto files: every layout gives the same columns, a damaged one a clear word."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from rerail.errors import EvidenceError
from rerail.tools.profiles.read_trace import read_trace
from rerail.tools.profiles.trace import CPU_OP, KERNEL, Trace

DATA = Path(__file__).parents[2] / "data/kineto"
REAL = DATA / "trace_filter__sampled_rank-1.json.gz"


def same(one: Trace, other: Trace) -> bool:
    columns = ("name", "kind", "start_us", "dur_us", "lane", "bytes", "group")
    return one.names == other.names and all(
        np.array_equal(getattr(one, c), getattr(other, c), equal_nan=True) for c in columns
    )


def test_columns_hold_what_the_standard_library_reads() -> None:
    raw = [
        e for e in json.loads(gzip.decompress(REAL.read_bytes()))["traceEvents"] if e["ph"] == "X"
    ]
    trace = read_trace(REAL)

    assert [trace.names[n] for n in trace.name] == [e["name"] for e in raw]
    assert trace.start_us.tolist() == [e["ts"] for e in raw]
    assert trace.dur_us.tolist() == [e["dur"] for e in raw]
    assert int((trace.kind == KERNEL).sum()) == sum(e["cat"] == "kernel" for e in raw)
    assert int((trace.kind == CPU_OP).sum()) == sum(e["cat"] == "cpu_op" for e in raw)
    assert (trace.rank, trace.world) == (1, 128)


@pytest.mark.parametrize("piece", [3_000, 20_011, 300_000])
def test_a_file_larger_than_memory_is_read_in_pieces(piece: int) -> None:
    assert same(read_trace(REAL, piece), read_trace(REAL))


def test_without_msgspec_the_columns_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read_trace(REAL)
    monkeypatch.setitem(sys.modules, "msgspec", None)
    assert same(read_trace(REAL, 50_000), whole)


def test_layouts_of_other_writers(tmp_path: Path) -> None:
    raw = json.loads(gzip.decompress(REAL.read_bytes()))
    events = raw.pop("traceEvents")[:400]
    whole = {**raw, "traceEvents": events}
    texts = {
        "last.json": json.dumps(whole),
        "first.json": json.dumps({"traceEvents": events, **raw}),
        "pretty.json": json.dumps(whole, indent=2),
        "rank1_list.json": json.dumps(events),
        "nan.json": json.dumps(whole).replace('"Ev Idx": ', '"share": NaN, "Ev Idx": '),
    }
    read = []
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        read.append(read_trace(tmp_path / name))
    assert "NaN" in texts["nan.json"]
    assert all(same(one, read[0]) and one.rank == 1 for one in read)
    assert read[0].world == read[1].world == 128


def test_nested_objects_in_arguments_do_not_end_an_event(tmp_path: Path) -> None:
    args = {"list": [{"a": 1}, {"b": 2}], "text": 'x},{"ph":"X"'}
    events = [
        {"ph": "X", "cat": "cpu_op", "name": f"op{i}", "ts": i, "dur": 1, "tid": 1, "args": args}
        for i in range(200)
    ]
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps({"traceEvents": events, "INFO": [{"a": 1}, {"b": [1]}]}))
    assert read_trace(path, 500).names == [f"op{i}" for i in range(200)]


@pytest.mark.parametrize("share", [0.02, 0.3, 0.7, 0.9999])
@pytest.mark.parametrize("piece", [10_000, 16 << 20])
def test_a_truncated_trace_is_refused_by_name(tmp_path: Path, share: float, piece: int) -> None:
    text = gzip.decompress(REAL.read_bytes())
    path = tmp_path / "rank3.json"
    path.write_bytes(text[: int(share * (text.rindex(b"]")))])
    with pytest.raises(EvidenceError, match=r"rank3\.json: not a readable trace"):
        read_trace(path, piece)


def test_a_truncated_archive_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "rank3.json.gz"
    path.write_bytes(REAL.read_bytes()[:40_000])
    with pytest.raises(EvidenceError, match=r"rank3\.json\.gz: not a readable trace"):
        read_trace(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "does not begin as JSON"), ("{}", "no traceEvents"), ("hello", "does not begin"),
        ('{"a": [1, 2', "not a readable trace"), ('{"traceEvents": 3}', "not a readable trace"),
        ('{"traceEvents": [1, 2, 3]}', "not a readable trace"), ("[", "not a readable trace"),
    ],
)  # fmt: skip
def test_what_is_no_trace_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "rank0.json"
    path.write_text(text)
    with pytest.raises(EvidenceError, match=said):
        read_trace(path)


def test_impossible_times_are_left_out_and_noted(tmp_path: Path) -> None:
    rows = [
        {"ph": "X", "cat": "kernel", "name": "k", "ts": 5, "dur": dur, "tid": 1}
        for dur in (1, -5, 2)
    ]
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps({"traceEvents": rows}))
    trace = read_trace(path)
    assert trace.dur_us.tolist() == [1, 2]
    assert "1 events with impossible times" in trace.notes[0]
