"""The compiled loops and those of numpy and pyarrow find the same in any bytes, and in real logs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rerail.log_parsers import line_tables, step_layouts, tallies
from rerail.log_parsers import survey as surveying
from rerail.log_parsers.line_tables import LineCodes, grouped, taken
from rerail.log_parsers.piece import Piece
from rerail.log_parsers.scan import Scanner, Signature, make_scanner
from rerail.log_parsers.sources import Source
from rerail.log_parsers.step_layouts import Span

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


@given(st.binary(min_size=1, max_size=9_000), st.integers(1, 40))
@settings(max_examples=100, deadline=None)
def test_tallies_of_any_bytes_are_the_same(data: bytes, every: int) -> None:
    # Blocks of the loop end anywhere in a line, and lines anywhere in sixteen bytes.
    text = b"\n".join(data[at : at + every * 7] for at in range(0, len(data), every * 7)) + b"\n"
    found = columns(text)
    with without_the_compiled():
        assert columns(text) == found


@given(TEXTS)
@settings(max_examples=50, deadline=None)
def test_line_ends_are_the_same(text: bytes) -> None:
    found = np.frombuffer(line_tables.compiled().line_ends(text), np.int64).tolist()
    assert found == [at for at, letter in enumerate(text) if letter == 10]


@given(
    TEXTS,
    st.integers(0, 60),
    st.integers(1, 70),
    st.sampled_from([b"[rank3]:", b"node7:", b"x"]),
)
@settings(max_examples=100, deadline=None)
def test_lines_of_a_label_are_the_same(text: bytes, row: int, most: int, label: bytes) -> None:
    piece = Piece(text)
    lines = piece.lines()
    row = min(row, len(lines) - 1)
    ends = np.asarray(piece.ends)
    found = np.frombuffer(
        line_tables.compiled().begun(text, ends, label, row, row + most), np.int64
    )
    last = min(row + most, len(lines))
    assert found.tolist() == [at for at in range(row, last) if lines[at].startswith(label)]


@given(
    st.lists(st.tuples(st.integers(0, 300), st.sampled_from([0, 1, 5])), min_size=1, max_size=80)
)
@settings(max_examples=50, deadline=None)
def test_facts_hold_the_first_and_the_last_line_whatever_the_order(
    lines: list[tuple[int, int]],
) -> None:
    rows = list(dict.fromkeys(row for row, _ in lines))
    streams = np.zeros(301, np.int32)
    for row, stream in lines:
        streams[row] = stream
    text = b"".join(b"%05d\n" % row for row in range(301))
    ends, offsets = np.asarray(Piece(text).ends), np.zeros(301, np.int32)
    facts = line_tables.new_facts()
    half = len(rows) // 2
    for some in (rows[:half], rows[half:]):
        facts.add(
            text, ends.astype(np.int64), streams, offsets, np.asarray(some, np.int64), 7 << 24, 10
        )
    keys, counts, firsts, lasts, first, last = facts.columns(np.arange(len(facts)))
    numbers = [np.frombuffer(column, np.int64).tolist() for column in (keys, counts, firsts, lasts)]
    for at, (key, count, low, high) in enumerate(zip(*numbers, strict=True)):
        own = [row for row in rows if streams[row] == key & 0xFFFFFF]
        assert key >> 24 == 7 and count == len(own)
        assert (low, high) == (10 + min(own), 10 + max(own))
        assert first[at * 48 :][:5] == b"%05d" % min(own) and last[at * 48 :][:5] == b"%05d" % max(
            own
        )
    assert len(numbers[0]) == len({int(streams[row]) for row in rows})


NUMBERS = st.sampled_from(
    [b"7", b"12345678901234567", b"-3", b"+2", b"12", b"1,024", b"12,34", b"0.25", b"3.", b".5", b"1e5", b"1.5E-04", b"2e", b"nan", b"1,000,000.5"]
)  # fmt: skip
WORDS = st.sampled_from(
    [b"loss: ", b" | ", b"  ", b" ", b"it", b"e", b",", b".", b"/", b"\xff", b"[rank", b"]: "]
)


@given(
    st.lists(st.tuples(WORDS, NUMBERS), min_size=1, max_size=6),
    st.lists(st.lists(NUMBERS, min_size=6, max_size=6), min_size=1, max_size=8),
    st.integers(0, 2),
)
@settings(max_examples=200, deadline=None)
def test_step_lines_are_read_as_their_patterns_read_them(
    parts: list[tuple[bytes, bytes]], others: list[list[bytes]], blanks: int
) -> None:
    text = b"".join(word + number for word, number in parts)
    tokens = [match.span() for match in step_layouts._TOKEN.finditer(text)]
    names = ("step", "loss", "step_time", "rank")
    spans = {
        name: Span(*at, milli=name == "step_time") for name, at in zip(names, tokens, strict=False)
    }
    if any(
        not text[at.start : at.end].lstrip(b"+-").replace(b",", b"").isdigit()
        for name, at in spans.items()
        if name in ("step", "rank")
    ):
        return  # a form finds whole numbers there
    layout = step_layouts._layout(text, spans)
    if layout is None:
        assert any(b"," in text[start:end] for start, end in tokens)
        return
    lines = [text] + [
        b"".join(word.replace(b" ", b" " * (1 + blanks)) + number for (word, _), number in zip(parts, more, strict=False))
        for more in others
    ]  # fmt: skip
    whole = b"\n".join(lines)
    *found, rest = line_tables.compiled().step_lines(whole, [layout.program])
    *plain, left = step_layouts._lines(whole, [layout])
    same = [column.tobytes() for column in plain]
    assert [bytes(column) for column in found] == same  # a NaN is no NaN's equal, its bytes are
    assert memoryview(rest).cast("q").tolist() == left.tolist()
    # A whole number that a column of reals does not hold is read in another way.
    long = any(at.end - at.start > 15 for name, at in spans.items() if name in ("step", "rank"))
    assert long or 0 not in left


@given(st.from_regex(rb"[-+]?[0-9]{1,20}(,[0-9]{3}){0,2}(\.[0-9]{0,20})?([eE][-+]?[0-9]{1,3})?", fullmatch=True))  # fmt: skip
@settings(max_examples=400, deadline=None)
def test_numbers_are_rounded_as_python_rounds_them(number: bytes) -> None:
    text = b"loss " + number
    layout = step_layouts._layout(text, {"loss": Span(5, len(text))})
    if layout is None:
        return  # commas that part no thousands
    found = line_tables.compiled().step_lines(text, [layout.program])
    assert memoryview(found[2]).cast("d")[1] == float(number.replace(b",", b""))


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
        patched.setattr(tallies, "_ARROW_AFTER", -1)
        patched.setattr(surveying, "WHOLE_FILE", 4_096)
        found = told(path, make_scanner(SIGNATURES, cache=None), size)
        with without_the_compiled():
            return found, told(path, make_scanner(SIGNATURES, cache=None), size)


@given(TEXTS, st.integers(100, 3_000))
@example(b"92026-03-04 01:00:12 [rank3]: \n", 100)  # a number that is glued to the time behind it
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


@given(
    TEXTS, st.lists(st.integers(0, 62), max_size=20).map(sorted), st.sampled_from([-1, 40, 1 << 40])
)
@settings(max_examples=100, deadline=None)
def test_kept_lines_are_the_same(text: bytes, rows: list[int], most: int) -> None:
    text = text.removesuffix(b"\n") if len(rows) % 2 else text
    piece = Piece(text)
    ends = np.frombuffer(line_tables.compiled().line_ends(text), np.int64)
    kept: dict[int, bytes] = {12: b"there before"}
    wanted = dict(kept)
    added = line_tables.compiled().kept(
        kept, text, ends, np.asarray(rows, np.int64), 10, most, 4_000
    )
    size = 0
    for row in rows:
        if row < piece.rows and size <= most and 10 + row not in wanted:
            line = piece.line(row)
            wanted[10 + row] = line if len(line) <= 4_000 else line[:2_000] + line[-2_000:]
            size += len(wanted[10 + row])
    assert (kept, added) == (wanted, size)


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 3)), max_size=80), st.integers(0, 4))
@settings(max_examples=50, deadline=None)
def test_facts_of_sets_are_those_of_each(lines: list[tuple[int, int]], most: int) -> None:
    shown = dict(sorted(lines))
    rows, sets = np.fromiter(shown, np.int64), np.fromiter(shown.values(), np.int32)
    streams = np.arange(301, dtype=np.int32) % 5
    text = b"".join(b"%05d\n" % row for row in range(301))
    ends, offsets = np.asarray(Piece(text).ends).astype(np.int64), np.zeros(301, np.int32)
    bases = np.asarray([3, 5, 5, 9], np.int64) << 24
    together, apart = line_tables.new_facts(), line_tables.new_facts()
    columns = together.add_sets(text, ends, streams, offsets, rows, sets, bases, 10, most)
    numbers, counts, last = (np.frombuffer(column, np.int64).tolist() for column in columns)
    assert sorted(numbers) == sorted(set(sets.tolist()))
    for at, number in enumerate(numbers):
        own = rows[sets == number]
        apart.add(text, ends, streams, offsets, own, int(bases[number]), 10)
        assert counts[at] == len(own)
        tail = own.tolist()[-most:] if most else []
        assert last[at * most : (at + 1) * most] == tail + [-1] * (most - len(tail))
    order = np.arange(len(apart))
    assert together.columns(order) == apart.columns(order)
    firsts = np.frombuffer(together.firsts(0, 3 << 24, 4 << 24), np.int64).tolist()
    assert sorted(firsts) == sorted(
        {int(streams[r]): 10 + r for r in reversed(rows[sets == 0].tolist())}.values()
    )
