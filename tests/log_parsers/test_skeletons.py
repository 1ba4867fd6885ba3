"""Stage 1 of template mining: counting does not depend on how the bytes arrive."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rerail.log_parsers.skeletons import Entry, SkeletonMiner

_PIECES = [
    b"iteration 12/ 500 | loss: 3.21",
    b"iteration 13/ 500 | loss: nan",
    b"sendbuff 0x7f00ab12 recvbuff 0x7f00cd34",
    b" 12%|#  | 12/100 [00:01<00:09, 3.1it/s]",
    b"\x00\x00\x00",
    b"\xff\xfe broken utf-8 \xc3",
    b"x" * 700 + b"7",
    b"y" * 300 + b"Q",
    b"dead",
    b"",
]
logs = st.lists(
    st.tuples(st.sampled_from(_PIECES), st.sampled_from([b"\n", b"\r", b"\r\n", b""])), max_size=60
).map(lambda pairs: b"".join(a + b for a, b in pairs))


def mine(data: bytes, size: int | None = None, bulk: bool = False) -> SkeletonMiner:
    miner = SkeletonMiner(bulk=bulk)
    line = 1
    for at in range(0, len(data), size or max(1, len(data))):
        chunk = data[at : at + (size or len(data))]
        miner.feed(chunk, line)
        line += chunk.count(b"\n")
    return miner


def counted(miner: SkeletonMiner) -> tuple[int, list[Entry]]:
    return miner.frames, list(miner.entries())


@given(logs, st.integers(1, 900), st.booleans())
@settings(max_examples=150, deadline=None)
def test_result_is_independent_of_chunk_size_and_engine(data: bytes, size: int, bulk: bool) -> None:
    assert counted(mine(data, size, bulk)) == counted(mine(data))


@given(logs, logs, st.booleans())
@settings(max_examples=100, deadline=None)
def test_merging_parts_equals_the_whole(one: bytes, two: bytes, swap: bool) -> None:
    one += b"\n"
    first, second = mine(one), SkeletonMiner()
    second.feed(two, 1 + one.count(b"\n"))
    if swap:
        second.merge(first)
        first = second
    else:
        first.merge(second)
    assert counted(first) == counted(mine(one + two))


@given(logs)
@settings(max_examples=50, deadline=None)
def test_counts_add_up_and_lines_are_the_newlines_of_the_file(data: bytes) -> None:
    miner = mine(data)
    entries = list(miner.entries())
    lines = data.split(b"\n")
    assert sum(e.count for e in entries) == miner.frames
    for entry in entries:
        first = lines[entry.first_line - 1].replace(b"\x00", b"")
        assert entry.first_line <= entry.last_line <= len(lines)
        assert entry.sample[:100] in first


def test_progress_frames_share_the_number_of_their_line() -> None:
    miner = mine(b"start\n 1% a\r 2% a\r 3% a\nend\n")
    found = {e.sample: e for e in miner.entries()}
    assert found[b" 1% a"].count == 3
    assert (found[b" 1% a"].first_line, found[b" 1% a"].last_line) == (2, 2)
    assert found[b"end"].first_line == 3


def test_lines_that_differ_in_digits_and_hex_are_one_and_nan_stands_out() -> None:
    miner = mine(b"loss: 1.25e+01 at 0xdeadbeef\nloss: 9.75e+02 at 0xfee1\nloss: nan at 0xfee1\n")
    assert [e.count for e in miner.entries()] == [2, 1]


@pytest.mark.parametrize("bulk", [False, True])
def test_a_line_of_ten_megabytes_stays_bounded(bulk: bool) -> None:
    long = b"head " + b"0123456789 z" * 900_000 + b" tail"
    whole = mine(b"a\n" + long + b"\nb\n", None, bulk)
    pieces = mine(b"a\n" + long + b"\nb\n", 1 << 20, bulk)
    assert counted(whole) == counted(pieces)
    entry = next(e for e in whole.entries() if e.first_line == 2)
    assert entry.sample.startswith(b"head ")
    assert entry.sample.endswith(b" tail")
    assert len(entry.sample) < 3_000
    assert len(entry.skeleton) < 300


def test_nul_bytes_do_not_hide_a_line() -> None:
    miner = mine(b"\x00" * 5_000 + b"CUDA error: 700\n" + "CUDA error: 701\n".encode("utf-16-le"))
    samples = [e.sample for e in miner.entries()]
    assert samples[0] == b"CUDA error: 700"
    assert next(iter(miner.entries())).count == 2


def test_pickle_keeps_everything() -> None:
    miner = mine(b"".join(_PIECES) + b"\nlast line without end")
    again: SkeletonMiner = pickle.loads(pickle.dumps(miner))
    assert counted(again) == counted(miner)
    again.feed(b"Later\n", 9)
    assert len(again) == len(miner) + 1


def test_above_the_cap_memory_is_bounded_and_templates_keep_their_counts() -> None:
    rng = [f"{chr(65 + i % 26)}{chr(65 + i // 26 % 26)}{chr(65 + i // 676)}" for i in range(3_000)]
    data = b"".join(f"path /{w}/x{i} opened\nroutine\n".encode() for i, w in enumerate(rng))
    small = SkeletonMiner(cap=500)
    for at in range(0, len(data), 997):
        small.feed(data[at : at + 997], 1 + data.count(b"\n", 0, at))
        assert len(small._index) <= 1_000
    assert small.frames == 6_000
    assert sum(e.count for e in small.entries()) == 6_000
    assert {e.count for e in small.entries() if e.sample == b"routine"} == {3_000}


def test_a_file_of_random_words_stays_bounded_and_keeps_its_error() -> None:
    data = b"".join(
        b"WORD%s here\n" % bytes([65 + i % 26, 65 + i // 26 % 26, 65 + i // 676])
        for i in range(3_000)
    )
    miner = SkeletonMiner(cap=100)
    miner.feed(data + b"RuntimeError: lost\n", 1)
    assert len(miner) <= 100
    assert any(e.sample == b"RuntimeError: lost" for e in miner.entries())


def test_import_is_light() -> None:
    code = (
        "import sys, rerail.log_parsers.skeletons as s; m = s.SkeletonMiner(); m.feed(b'a 1\\n', 1);"
        "print([n for n in ('numpy', 'pyarrow') if n in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
