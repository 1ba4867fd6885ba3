"""The compiled loops and those of numpy and pyarrow find the same in any bytes, and in real logs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rerail.log_parsers import line_tables, tallies
from rerail.log_parsers import survey as surveying
from rerail.log_parsers.line_tables import LineCodes, grouped, taken
from rerail.log_parsers.piece import Piece
from rerail.log_parsers.scan import Scanner, Signature, make_scanner
from rerail.log_parsers.sources import Source

pytest.importorskip("pyarrow")
pytestmark = pytest.mark.skipif(
    line_tables.compiled() is None, reason="no compiler was there when rerail was installed"
)

DATA = Path(__file__).parents[1] / "data"
REAL = sorted((DATA / "faultlab").glob("*/*.log"))[::6]
SIGNATURES = [
    Signature("Error"),
    Signature(r"rank ?[37]\b"),
    Signature(r"(?i)time.?out", wants_context=True),
    Signature("NCCL", presence=True),
]
PARTS = st.sampled_from(
    [b"[rank3]: ", b"[rank14]:", b"node7: 3: ", b"2026-03-04 01:00:12 ", b"loss 0.25", b"dead beef", b"\x1b[31m",
     b"Error ", b"timeout", b"rank 7", b"\xff\xc3", b"x" * 5_000, b"\r", b"\r", b"9", b"Q"]
)  # fmt: skip
TEXTS = st.lists(st.lists(PARTS, max_size=6).map(b"".join), min_size=1, max_size=60).map(
    lambda lines: b"\n".join(lines) + b"\n"
)


@contextmanager
def without_the_compiled() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(line_tables, "compiled_loops", None)
        yield


def columns(text: bytes) -> list[Any]:
    piece = Piece(text)
    one = tallies.tally_large(piece, 5)
    plain = [
        one.frames,
        one.keys,
        one.counts,
        one.firsts,
        one.lasts,
        one.places,
        one.codes.tolist(),
    ]
    lines = None if one.lines is None else one.lines.tolist()
    return [*plain, lines, list(piece.ends), list(piece.frame_ends), [one.raw(at) for at in one.places]]  # fmt: skip


@given(TEXTS)
@settings(max_examples=100, deadline=None)
def test_tallies_are_the_same(text: bytes) -> None:
    found = columns(text)
    with without_the_compiled():
        assert columns(text) == found


@given(TEXTS, st.booleans(), st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_codes_and_lines_are_the_same(text: bytes, zero: bool, draw: Any) -> None:
    piece = Piece(text)
    compiled = LineCodes(zero=zero)
    with without_the_compiled():
        plain = LineCodes(zero=zero)
    for _ in range(3):
        count = text.count(b"\n")
        rows = np.asarray(sorted(draw.sample(range(count), draw.randint(1, count))), np.int64)
        codes, new = compiled.of(piece, rows)
        same, as_new = plain.of(piece, rows)
        assert codes.tolist() == same.tolist() and new.tolist() == as_new.tolist()
        assert len(compiled) == len(plain)
        whole, stops = taken(piece, rows)
        with without_the_compiled():
            assert (whole, stops.tolist()) == (
                taken(piece, rows)[0],
                taken(piece, rows)[1].tolist(),
            )
        assert [whole[stop : stop + 1] for stop in stops] == [b"\n"] * len(rows)


@given(st.lists(st.sampled_from([0, 1, 2, 7, 100_000]), min_size=2, max_size=50), st.booleans())
def test_groups_are_the_same(streams: list[int], some: bool) -> None:
    of = np.asarray(streams, np.int32)
    rows = np.arange(0, len(streams), 2) if some else None

    def told() -> list[tuple[int, ...]]:
        return sorted(zip(*(column.tolist() for column in grouped(of, rows)), strict=True))

    found = told()
    with without_the_compiled():
        assert told() == found


def test_lines_that_are_not_there_are_refused() -> None:
    table, piece = line_tables.new_table(), Piece(b"a\nb\n")
    ends = np.asarray(piece.ends)
    for rows in ([2], [-1]):
        with pytest.raises(IndexError):
            table.lines(piece.raw, ends, np.asarray(rows, np.int64), False)
        with pytest.raises(IndexError):
            line_tables.compiled().taken(piece.raw, ends, np.asarray(rows, np.int64))


def told(path: Path, scanner: Scanner, size: int) -> dict[str, Any]:
    """Return what a survey says; the bytes around times may reach into the next line or not."""
    found = surveying.survey(
        Source(path, path.name), SIGNATURES, scanner, mine=True, chunk_size=size
    )
    facts = found.facts
    shown = {
        (facts.sets[key >> 24], facts.examples[key & 0xFFFFFF][: facts.ends[key & 0xFFFFFF]]): (count, first, last)
        for key, count, first, last in zip(facts.keys, facts.counts, facts.firsts, facts.lasts, strict=True)
    }  # fmt: skip
    return {
        "facts": shown,
        "hits": found.hits,
        "counts": found.counts,
        "kept": found.kept,
        "steps": found.steps,
        "mined": list(found.miner.entries()) if found.miner else None,
    }


def both_ways(path: Path, size: int) -> tuple[dict[str, Any], dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(surveying, "vectors_pay", lambda _: True)
        patched.setattr(surveying, "WHOLE_FILE", 4_096)
        found = told(path, make_scanner(SIGNATURES, cache=None), size)
        with without_the_compiled():
            return found, told(path, make_scanner(SIGNATURES, cache=None), size)


@given(TEXTS, st.integers(100, 3_000))
@settings(max_examples=25, deadline=None)
def test_surveys_of_any_bytes_are_the_same(
    tmp_path_factory: pytest.TempPathFactory, text: bytes, size: int
) -> None:
    path = tmp_path_factory.mktemp("logs") / "train.log"
    path.write_bytes(3 * text)
    found, same = both_ways(path, size)
    assert found == same


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.parent.name)
def test_surveys_of_real_logs_are_the_same(path: Path, tmp_path: Path) -> None:
    longer = tmp_path / "train.log"
    longer.write_bytes(4 * path.read_bytes())
    found, same = both_ways(longer, 9_000)
    assert found == same and found["facts"]
