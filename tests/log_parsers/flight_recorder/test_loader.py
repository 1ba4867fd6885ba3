"""The loader: both formats, every kind of damage, and files that want to do harm."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import resource
import subprocess
import sys
import time
import zipfile
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rerail.knowledge_base.waiting.dumps.judge import diagnose_dumps, judge
from rerail.log_parsers.flight_recorder.loader import Limits, load_dumps
from rerail.log_parsers.flight_recorder.model import Dump, DumpProblem, dump_from_plain
from rerail.log_parsers.flight_recorder.recognise import looks_like_flight_recorder, rank_in_name
from rerail.log_parsers.flight_recorder.worker import Refused, parse, read_one, reduce_dump

DATA = Path(__file__).parents[2] / "data" / "flight_recorder"
REAL = gzip.decompress((DATA / "gpu_error_2nd" / "_dump_14.gz").read_bytes())
REAL_JSON = gzip.decompress((DATA / "gloo_hang_json" / "n0_rank_0.json.gz").read_bytes())
LIMITS = {"nodes": 50_000, "entries": 2_000}


def problem_of(path: Path, limits: Limits | None = None) -> DumpProblem:
    (answer,) = load_dumps([path], limits=limits)
    assert isinstance(answer, DumpProblem)
    return answer


@pytest.mark.parametrize("as_json", [False, True])
def test_pickle_and_json_say_the_same(synthetic: Any, tmp_path: Path, as_json: bool) -> None:
    job = synthetic(4)
    job.collective()
    job.collective(ranks=[0, 1, 3], done=False)
    paths = [job.write(tmp_path, rank, as_json=as_json) for rank in range(4)]
    verdict = diagnose_dumps(paths)
    assert (verdict.kind, verdict.culprit_ranks) == ("missing_rank", (2,))
    assert {Path(e.file).parent for e in verdict.evidence} == {tmp_path}


def test_answers_keep_the_order_of_the_paths(synthetic: Any, tmp_path: Path) -> None:
    job = synthetic(40)
    job.collective()
    paths = [job.write(tmp_path, rank) for rank in range(40)]
    paths[7].write_bytes(paths[7].read_bytes()[:100])
    answers = load_dumps(paths)
    assert [a.rank for a in answers] == list(range(40))
    assert [i for i, a in enumerate(answers) if isinstance(a, DumpProblem)] == [7]


def test_many_dumps_share_readers(
    synthetic: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []
    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **k: started.append(a) or popen(*a, **k))
    job = synthetic(4)
    job.collective()
    paths = [job.write(tmp_path, 0)] * 512
    assert all(isinstance(a, Dump) for a in load_dumps(paths))
    assert len(started) <= 8


@pytest.mark.parametrize("cut", [0, 1, 2, 20, 500, 2000, len(REAL) - 1])
def test_truncated_pickle(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "_dump_14"
    path.write_bytes(REAL[:cut])
    problem = problem_of(path)
    assert (problem.kind, problem.rank) == ("truncated", 14)


@pytest.mark.parametrize("cut", [1, 200, len(REAL_JSON) - 2])
def test_truncated_json(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "x_rank_3.json"
    path.write_bytes(REAL_JSON[:cut])
    assert (problem_of(path).kind, problem_of(path).rank) == ("truncated", 3)


def test_truncated_gzip(tmp_path: Path) -> None:
    path = tmp_path / "_dump_2.gz"
    path.write_bytes(gzip.compress(REAL)[:-200])
    assert (problem_of(path).kind, problem_of(path).rank) == ("truncated", 2)


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "_dump_1")
    answers = load_dumps([tmp_path / "_dump_0", tmp_path / "_dump_1", tmp_path])
    assert [a.kind for a in answers if isinstance(a, DumpProblem)] == [
        "missing",
        "unreadable",
        "unreadable",
    ]


def test_odd_file_name(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/n\xff\n_dump_14"))
    path.write_bytes(REAL)
    (answer,) = load_dumps([path])
    assert isinstance(answer, Dump)


class Execute:
    """A pickle of this object runs a shell command when loaded by an ordinary unpickler."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (self.command,)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickle_that_executes_does_nothing(tmp_path: Path, protocol: int, packed: bool) -> None:
    mark = tmp_path / "executed"
    payload = {"version": "2.9", "pg_config": {}, "entries": [Execute(f"touch {mark}")]}
    data = pickle.dumps(payload, protocol)
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(gzip.compress(data) if packed else data)
    problem = problem_of(path)
    # Protocols 0 and 1 have no header and are not taken for pickles at all.
    assert problem.kind == ("refused" if protocol > 1 else "not_a_dump")
    time.sleep(0.05)
    assert not mark.exists()


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x02cbuiltins\neval\n(X\x08\x00\x00\x001/0+1/0 tR.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.",
        b"\x80\x02ccollections\nOrderedDict\n)R.",
        b"\x80\x02K\x01Q.",
        b"\x80\x02\x82\x01.",
    ],
)
def test_pickles_that_ask_for_anything_are_refused(data: bytes) -> None:
    with pytest.raises(Refused) as caught:
        parse(data)
    assert caught.value.kind in ("refused", "corrupt")


def test_zip_bomb_and_zip_file(tmp_path: Path) -> None:
    limits = Limits(unpacked_bytes=1 << 20)
    bomb = tmp_path / "_dump_0.gz"
    bomb.write_bytes(gzip.compress(b"\x80" + bytes(50 << 20)))
    archive = tmp_path / "_dump_1"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("x", bytes(1 << 20))
    kinds = [
        a.kind for a in load_dumps([bomb, archive], limits=limits) if isinstance(a, DumpProblem)
    ]
    assert kinds == ["too_large", "not_a_dump"]


def test_large_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "_dump_0"
    with path.open("wb") as file:
        file.truncate(1 << 34)  # sparse: 16 GB that take no room
    assert problem_of(path).kind == "too_large"


def memory_bomb() -> bytes:
    """A few bytes that make the unpickler ask for gigabytes (a memo index out of all bounds)."""
    return b"\x80\x02}r\xff\xff\xff\x7f."


def sharing_bomb() -> bytes:
    """A list of lists that share: 60 levels of two, 2**60 values when walked."""
    value: list[Any] = []
    for _ in range(60):
        value = [value, value]
    return pickle.dumps({"version": "2.9", "pg_config": {}, "entries": [{"input_sizes": value}]}, 2)


def hashing_bomb() -> bytes:
    """A dictionary key of shared tuples, whose hash takes 2**60 steps inside one C call."""
    value: tuple[Any, ...] = ()
    for _ in range(60):
        value = (value, value)
    dumped = pickle.dumps(value, 2)
    return dumped[:2] + b"}" + dumped[2:-1] + b"K\x01s."


def deep_json() -> bytes:
    return b'{"entries": ' + b"[" * 1_000_000


@pytest.mark.parametrize("bomb", [memory_bomb, sharing_bomb, hashing_bomb, deep_json])
def test_bombs_cost_little_and_spare_the_other_files(tmp_path: Path, bomb: Any) -> None:
    bad = tmp_path / "_dump_0"
    bad.write_bytes(bomb())
    good = tmp_path / "_dump_14"
    good.write_bytes(REAL)
    limits = Limits(seconds_per_file=1, memory_bytes=256 << 20)
    begin = time.monotonic()
    first, second, third = load_dumps([good, bad, good], limits=limits)
    assert time.monotonic() - begin < 8
    assert isinstance(second, DumpProblem)
    assert isinstance(first, Dump)
    assert isinstance(third, Dump)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 1 << 21


def test_too_many_hostile_files_end_the_reading(tmp_path: Path) -> None:
    bad = tmp_path / "_dump_0"
    bad.write_bytes(hashing_bomb())
    limits = Limits(seconds_per_file=1, lost_readers=2)
    kinds = [a.kind for a in load_dumps([bad] * 4, limits=limits) if isinstance(a, DumpProblem)]
    assert kinds == ["timed_out", "timed_out", "unreadable", "unreadable"]


def test_a_dump_longer_than_the_limit_keeps_the_newest_entries(
    synthetic: Any, tmp_path: Path
) -> None:
    job = synthetic(2)
    for _ in range(50):
        job.collective()
    (dump,) = load_dumps([job.write(tmp_path, 0)], limits=replace(Limits(), entries=10))
    assert isinstance(dump, Dump)
    assert dump.clipped
    assert [e.seq for e in dump.entries] == list(range(41, 51))
    assert dump.entries[0].index == 40


@given(st.binary(max_size=300), st.sampled_from([b"", b"\x80\x02", b"{", b"\x1f\x8b"]))
@settings(max_examples=300, deadline=None)
def test_any_bytes_get_an_answer(tmp_path_factory: Any, data: bytes, start: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any_dump_3"
    path.write_bytes(start + data)
    limits = {"file_bytes": 1 << 20, "unpacked_bytes": 1 << 20, **LIMITS}
    answer = read_one(str(path), limits)
    assert set(answer) in ({"dump"}, {"problem"})
    looks_like_flight_recorder(start + data, "any_dump_3")


@pytest.mark.parametrize("source", [REAL, REAL_JSON])
def test_damaged_dumps_get_an_answer_and_a_verdict(tmp_path: Path, source: bytes) -> None:
    random = Random(7)
    paths = []
    for number in range(200):
        damaged = bytearray(source)
        for _ in range(random.randint(1, 8)):
            damaged[random.randrange(len(damaged))] = random.randrange(256)
        if random.random() < 0.3:
            del damaged[random.randrange(len(damaged)) :]
        path = tmp_path / f"nccl_trace_rank_{number}"
        path.write_bytes(damaged)
        paths.append(path)
    answers = load_dumps(paths)
    assert not [a for a in answers if isinstance(a, DumpProblem) and a.kind == "unreadable"]
    assert any(isinstance(a, Dump) for a in answers)
    for answer in answers:
        if isinstance(answer, Dump):
            assert judge([answer, replace(answer, rank=answer.rank ^ 1)]).reason


@given(st.integers(0, len(REAL_JSON)), st.binary(max_size=12), st.integers(0, 40))
@settings(max_examples=200, deadline=None)
def test_spliced_json_gets_an_answer(at: int, new: bytes, drop: int) -> None:
    try:
        values = reduce_dump(parse(REAL_JSON[:at] + new + REAL_JSON[at + drop :]), LIMITS)
    except Refused:
        return
    dump = dump_from_plain("_dump_1", json.loads(json.dumps(values)), 1)
    assert isinstance(dump, DumpProblem) or judge([dump]).reason


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)
odd_entry = st.fixed_dictionaries(
    {
        "profiling_name": st.sampled_from(["nccl:all_reduce", "nccl:send 0->1", "x", ":"]) | plain,
        "state": st.sampled_from(["scheduled", "completed"]) | plain,
    },
    optional={
        "process_group": st.just(["0", "default_pg"]) | plain,
        "collective_seq_id": st.integers(0, 3) | plain,
        "p2p_seq_id": st.integers(0, 3) | plain,
        "pg_id": st.integers(0, 2) | plain,
        "retired": plain,
        "is_p2p": plain,
        "input_sizes": plain,
        "input_dtypes": plain,
        "output_sizes": plain,
        "time_created_ns": plain,
        "record_id": plain,
        "frames": plain,
    },
)
odd_config = st.dictionaries(
    st.sampled_from(["0", "1", "", "a", "\u00b2"]),
    st.fixed_dictionaries(
        {"ranks": st.sampled_from(["[0, 1]", "[1]", "[]", "[x,", [0, 1], [True]]) | plain}
    )
    | plain,
    max_size=3,
)


@given(
    st.lists(
        st.fixed_dictionaries(
            {"pg_config": odd_config, "entries": st.lists(odd_entry | plain, max_size=5)},
            optional={
                "pg_status": st.dictionaries(st.sampled_from(["0", "1", "x", "\u00b2"]), plain)
                | plain,
                "version": plain,
                "rank": plain,
            },
        ),
        max_size=4,
    )
)
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_content_of_the_right_shape_gets_a_verdict(contents: list[dict[str, Any]]) -> None:
    answers = []
    for rank, content in enumerate(contents):
        try:
            answers.append(
                dump_from_plain("f", json.loads(json.dumps(reduce_dump(content, LIMITS))), rank)
            )
        except Refused:
            continue
    verdict = judge(
        [a for a in answers if isinstance(a, Dump)],
        [a for a in answers if isinstance(a, DumpProblem)],
    )
    assert verdict.reason


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("/tmp/nccl_trace_rank_3", 3),
        ("_dump_12", 12),
        ("comm_lib_trace_rank_7", 7),
        ("gpu-node-7_rank_12.json", 12),
        ("n3_dump_5.pickle.gz", 5),
        ("trace-31", 31),
        ("notes", None),
    ],
)
def test_rank_in_name(name: str, rank: int | None) -> None:
    assert rank_in_name(name) == rank


@pytest.mark.parametrize(
    ("head", "name", "expected"),
    [
        (REAL[:4096], "blob", True),
        (REAL_JSON[:4096], "blob", True),
        (gzip.compress(REAL)[:4096], "blob", True),
        (b"", "nccl_trace_rank_3", True),
        (b"\x80\x02}", "_dump_3", True),
        (b"", "train_rank_3.log", False),
        (b"[rank3]: loss 3.1\n", "train_rank_3.log", False),
        (b"plain text\n", "_dump_3", False),
        (b'{"message": "x"}', "events_rank_2.json", False),
        (pickle.dumps({"weights": 1}, 2), "model.pkl", False),
    ],
)
def test_recognition(head: bytes, name: str, expected: bool) -> None:
    assert looks_like_flight_recorder(head, name) is expected


def test_import_is_cheap() -> None:
    code = "import sys, rerail.log_parsers.flight_recorder; print(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert not {"pydantic", "numpy", "subprocess"} & set(result.stdout.split())
