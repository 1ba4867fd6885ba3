"""Which hits are kept is the same on all ways through a file, and warnings use up nobody's room."""

import gc
import random
import weakref
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from rerail.log_parsers import line_tables, tallies
from rerail.log_parsers.room import Room
from rerail.log_parsers.scan import Signature, make_scanner
from rerail.log_parsers.sources import Source
from rerail.log_parsers.survey import FilePass, FileSurvey, survey

SIGNATURES = (
    Signature(r"[A-Z]\w{0,60}(?:Error|Warning): ", wants_context=True, order=2),
    Signature(r"UserWarning: ", harmless=True, unless="CUDA|x7", order=0),
    Signature(r"FutureWarning: ", harmless=True, order=1),
    Signature(r"NCCL version", presence=True, order=3),
    Signature(r"code 3[05]\b", order=4),
    Signature(r"is ready", presence=True, order=5),
)
ROOM = replace(Room(), whole=1_000, hits=20, harmless=3, last=5, contexts=2, writers=7)


def log_of(seed: int) -> bytes:
    draw = random.Random(seed)
    says = (
        "UserWarning: {n} workers are many", "UserWarning: CUDA is slow {n}", "UserWarning: x{d} is old",
        "FutureWarning: `x` is deprecated in {n}", "ValueError: bad shard {d}", "NCCL version 2.{d}",
        "exit with code 3{d}", "step {n} loss 0.{d}", "rank {n} is ready", "nothing {n}",
    )  # fmt: skip
    weights = (9, 2, 3, 6, 1, 2, 2, 60, 1, 30)
    lines = []
    for _ in range(12_000):
        front = f"[rank{draw.randrange(40)}]: " if draw.random() < 0.8 else ""
        words = draw.choices(says, weights)[0].format(n=draw.randrange(10**6), d=draw.randrange(10))
        lines.append(front + words)
    return ("\n".join(lines) + "\n").encode()


def read(path: Path, monkeypatch: pytest.MonkeyPatch, *, bulk: bool, size: int) -> FileSurvey:
    for name in ("_ARROW_AFTER", "_COMPILED_AFTER", "_SIEVES_AFTER"):
        monkeypatch.setattr(tallies, name, 0 if bulk else 1 << 60)
    for name in ("_LEAST", "_LEAST_COMPILED"):
        monkeypatch.setattr(tallies, name, 1)
    monkeypatch.setattr("rerail.log_parsers.sieve._TRIED", 0)
    scanner = make_scanner(SIGNATURES, cache=None, engine="hyperscan" if bulk else "re")
    source = Source(path, path.name)
    for _ in range(2 if bulk else 1):  # a second file meets what the scanner knows
        found = survey(source, SIGNATURES, scanner, chunk_size=size, room=ROOM)
    return found


@pytest.mark.parametrize("size", [1 << 14, 1 << 20])
@pytest.mark.parametrize("way", ["compiled", "arrow"])
def test_all_ways_keep_the_same_hits(
    way: str, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(log_of(size))
    plain = read(path, monkeypatch, bulk=False, size=size)
    if way == "arrow":
        monkeypatch.setattr(line_tables, "compiled_loops", None)
    sieved = read(path, monkeypatch, bulk=True, size=size)
    assert sieved.hits == plain.hits
    assert sieved.counts == plain.counts
    assert sieved.kept == plain.kept
    for at in range(len(SIGNATURES)):
        told, known = (
            sorted((one.stream, one.count, one.first, one.last) for one in found.facts.of(at))
            for found in (sieved, plain)
        )
        assert told == known


def test_of_harmless_lines_a_few_are_kept_whoever_writes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "job.log"
    warned = "".join(f"[rank{n % 400}]: UserWarning: {n} workers are many\n" for n in range(9_000))
    path.write_text(warned + "[rank7]: ValueError: bad shard\n" + warned)
    found = read(path, monkeypatch, bulk=True, size=1 << 16)
    assert found.counts == {0: 18_001, 1: 18_000}
    assert len(found.facts.streams(1)) == 400
    kept = Counter(hit.signature for hit in found.hits)
    assert kept == {0: ROOM.harmless + 1 + ROOM.last, 1: ROOM.harmless + ROOM.last}
    assert 9_001 in {hit.line for hit in found.hits}


def test_the_head_of_a_file_is_kept_whatever_the_size_of_its_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(log_of(1))
    for size in (1 << 12, 1 << 20):
        found = read(path, monkeypatch, bulk=True, size=size)
        assert set(range(1, 51)) <= set(found.kept)


def test_a_pass_is_let_go_at_once() -> None:
    gc.collect()
    gc.disable()
    try:
        scanner = make_scanner(SIGNATURES, cache=None, engine="re")
        reader = FilePass(Source(None, "job.log"), SIGNATURES, scanner, ROOM)
        for _ in range(3):
            reader.feed(log_of(2))
        reader.finish()
        gone = weakref.ref(reader)
        del reader
        assert gone() is None
    finally:
        gc.enable()
