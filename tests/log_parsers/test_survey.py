"""One pass over a file: line numbers as grep counts them, damage reported, memory bounded."""

from __future__ import annotations

import bz2
import gzip
import lzma
import random
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rerail.log_parsers import room
from rerail.log_parsers import survey as surveying
from rerail.log_parsers.collect import ScanPlan, collect
from rerail.log_parsers.scan import Scanner, Signature, make_scanner
from rerail.log_parsers.sources import Source
from rerail.log_parsers.survey import FileSurvey, survey, survey_bytes

NEEDLE = "needle in the hay"
SIGNATURES = (Signature(NEEDLE, wants_context=True), Signature(r"lost\s*$"))


@pytest.fixture(scope="module")
def scanner() -> Scanner:
    return make_scanner(SIGNATURES, cache=None)


def grep(path: Path) -> list[int]:
    done = subprocess.run(
        ["grep", "-a", "-n", NEEDLE, str(path)],
        capture_output=True,
        check=False,
        env={"LC_ALL": "C"},
    )
    return [
        int(line.split(b":")[0]) for line in done.stdout.split(b"\n") if NEEDLE.encode() in line
    ]


def read(path: Path, scanner: Scanner, chunk_size: int = 1 << 20) -> FileSurvey:
    return survey(Source(path, path.name), SIGNATURES, scanner, chunk_size=chunk_size)


def lines_of(result: FileSurvey, signature: int = 0) -> list[int]:
    return [hit.line for hit in result.hits if hit.signature == signature]


ROW = b"row of hay\n"
HIT = b"a needle in the hay, found"
SHAPES: dict[str, bytes] = {
    "plain": ROW * 5 + HIT + b"\n" + ROW,
    "no final newline": ROW * 3 + HIT,
    "only a hit": HIT,
    "dos": (ROW * 4 + HIT + b"\n" + ROW).replace(b"\n", b"\r\n"),
    "old mac frames are one line": b"10%\r20%\r" + HIT + b"\r30%\n" + ROW + HIT + b"\n",
    "progress bar": b"".join(b"\r%d%%|###" % i for i in range(100)) + b"\n" + HIT + b"\n",
    "empty lines": b"\n\n\n" + HIT + b"\n\n" + HIT + b"\n\n\n",
    "invalid utf-8": b"\xff\xfe\x80\n\xc3(\n" + HIT + b" \xe2\x82\n",
    "nul": b"a\x00b\n" + b"\x00" * 40 + b"\n" + HIT + b"\x00\n",
    "form feed and vertical tab": b"a\x0cb\x0bc\n" + HIT + b"\n",
    "unicode line separators": "one\u2028two\u2029three\u0085four\n".encode() + HIT + b"\n",
    "10 MB line before": b"x" * (10 << 20) + b"\n" + HIT + b"\n",
    "10 MB line with the hit at its end": ROW + b"y" * (10 << 20) + HIT + b"\n" + ROW + HIT + b"\n",
    "many lines": ROW * 70_000 + HIT + b"\n" + ROW * 70_000 + HIT + b"\n",
}


@pytest.mark.parametrize("shape", SHAPES)
def test_line_numbers_are_those_of_grep(shape: str, tmp_path: Path, scanner: Scanner) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(SHAPES[shape])
    expected = grep(path)
    assert expected
    result = read(path, scanner)
    if shape == "10 MB line with the hit at its end":
        # A line is cut for the confirmation; a hit in its middle is found, one line is one hit.
        assert expected[-1] in lines_of(result)
    else:
        assert lines_of(result) == expected
    newlines = SHAPES[shape].count(b"\n")
    assert result.lines == newlines + (not SHAPES[shape].endswith(b"\n"))
    assert result.size == len(SHAPES[shape])


def test_an_escape_code_inside_does_not_move_a_number(scanner: Scanner) -> None:
    data = b"\x1b[1mone\x1b[0m\n\x1b]0;title\x07\nneedle \x1b[31min the\x1b[0m hay\n"
    assert lines_of(survey_bytes(Source(None, "x"), data, SIGNATURES, scanner)) == [3]


@settings(max_examples=60)
@given(
    st.lists(
        st.sampled_from(
            [ROW, HIT + b"\n", HIT, b"\n", b"\r\n", b"\r", b"\x00", b"\xff", b"lost \n", b"\x1b[m"]
        ),
        max_size=60,
    ),
    st.integers(1, 300),
)
def test_a_survey_does_not_depend_on_the_size_of_a_chunk(parts: list[bytes], size: int) -> None:
    data = b"".join(parts)
    scanner = make_scanner(SIGNATURES, cache=None)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.log"
        path.write_bytes(data)
        small, large = read(path, scanner, size), read(path, scanner)
    if large.binary or small.binary:
        return
    assert (small.hits, small.lines, small.kept, small.steps) == (
        large.hits,
        large.lines,
        large.kept,
        large.steps,
    )


def big(path: Path, lines: int = 80_000, every: int = 9_973) -> Path:
    with path.open("wb") as out:
        for i in range(1, lines + 1):
            middle = HIT if i % every == 0 else b"all is well in the barn, step by step by step"
            out.write(b"2026-03-01 02:14:07 %06d %s\n" % (i, middle))
    return path


def test_a_big_file_keeps_its_head_its_tail_and_what_is_around_a_hit(
    tmp_path: Path, scanner: Scanner
) -> None:
    path = big(tmp_path / "big.log")
    result = read(path, scanner)
    assert path.stat().st_size > surveying.WHOLE_FILE
    assert not result.whole
    assert lines_of(result) == grep(path)
    assert {1, 2, room.HEAD_LINES} <= result.kept.keys()
    assert {80_000, 80_001 - surveying.TAIL_LINES} <= result.kept.keys()
    for hit in lines_of(result):
        assert {hit - 20, hit, hit + 20} <= result.kept.keys()
    assert len(result.kept) < 3_000
    for number, raw in result.kept.items():
        assert b" %06d " % number in raw


@pytest.mark.parametrize("size", [4_096, 100_003, 1 << 20, 16 << 20])
def test_the_hits_of_a_big_file_do_not_depend_on_the_size_of_a_chunk(
    tmp_path: Path, scanner: Scanner, size: int
) -> None:
    path = big(tmp_path / "big.log")
    result = read(path, scanner, size)
    assert lines_of(result) == grep(path)
    assert result.lines == 80_000
    for number, raw in result.kept.items():
        assert b" %06d " % number in raw


def test_a_file_that_is_nothing_but_hits_stays_bounded(tmp_path: Path, scanner: Scanner) -> None:
    path = tmp_path / "storm.log"
    path.write_bytes((HIT + b" and found and found and found again\n") * 120_000)
    result = read(path, scanner)
    assert result.counts[0] == 120_000
    assert len(result.hits) <= room.HITS_PER_SIGNATURE + room.LAST_HITS
    assert lines_of(result)[-1] == 120_000, "the last hits are kept as well"
    assert sum(map(len, result.kept.values())) < 2 * room.KEEP_BYTES


def test_every_rank_of_a_storm_keeps_a_hit(tmp_path: Path, scanner: Scanner) -> None:
    path = tmp_path / "ranks.log"
    rows = [b"[rank0]: " + HIT] * 60_000 + [b"[rank%d]: %s" % (r, HIT) for r in range(1, 900)]
    path.write_bytes(b"\n".join(rows) + b"\n")
    result = read(path, scanner)
    assert not result.whole
    assert set(range(60_001, 60_900)) <= set(lines_of(result))


@pytest.mark.parametrize(
    "pack", [gzip.compress, partial(lzma.compress, preset=0), bz2.compress], ids=["gz", "xz", "bz2"]
)
def test_a_torn_compressed_file_is_reported_and_the_rest_is_kept(
    pack: Callable[[bytes], bytes], tmp_path: Path, scanner: Scanner
) -> None:
    noise = random.Random(7)
    rows = [b"%06d %s" % (i, noise.randbytes(40).hex().encode()) for i in range(1, 30_001)]
    rows[9] += HIT
    whole = pack(b"\n".join(rows) + b"\n")
    path = tmp_path / "torn.log"
    path.write_bytes(whole[: len(whole) // 2])
    result = read(path, scanner)
    assert lines_of(result) == [10]
    assert 5_000 < result.lines < 29_000
    (problem,) = result.problems
    assert problem.subject == "torn.log"
    assert "stopped behind line" in problem.why
    assert problem.hint


def test_damaged_gzip_data_is_reported(tmp_path: Path, scanner: Scanner) -> None:
    whole = bytearray(gzip.compress(random.Random(1).randbytes(400_000).hex().encode()))
    whole[len(whole) // 2] ^= 0xFF
    path = tmp_path / "x.gz"
    path.write_bytes(bytes(whole))
    assert read(path, scanner).problems


def test_a_file_that_vanished_is_a_problem(tmp_path: Path, scanner: Scanner) -> None:
    result = read(tmp_path / "gone.log", scanner)
    assert "cannot be opened" in result.problems[0].why
    assert result.lines == 0


@pytest.mark.parametrize(
    "data",
    [
        b"\x7fELF\x02\x01\x01" + b"\0" * 90,
        b"\x80\x04\x95pickle",
        b"PK\x03\x04zip",
        bytes(range(1, 7)) * 60,
    ],
)
def test_a_binary_file_is_set_apart(data: bytes, scanner: Scanner) -> None:
    assert survey_bytes(Source(None, "x"), data, SIGNATURES, scanner).binary


@pytest.mark.parametrize("data", [b"", b"\n", b"\xff\xfe caf\xe9\n", b"\x1b[31mred\x1b[0m\n" * 40])
def test_a_text_is_no_binary(data: bytes, scanner: Scanner) -> None:
    assert not survey_bytes(Source(None, "x"), data, SIGNATURES, scanner).binary


def test_two_processes_bring_back_what_one_does(
    job: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from rerail.log_parsers import collect as collecting

    folder = job({f"rank_{r}.log": ROW * r + HIT + b"\n" for r in range(1, 9)})
    alone = collect([folder], ScanPlan(SIGNATURES), workers=1)
    monkeypatch.setattr(collecting, "PARALLEL_FROM", 0)
    seen: list[tuple[int, int]] = []
    shared = collect(
        [folder],
        ScanPlan(SIGNATURES),
        workers=2,
        on_progress=lambda done, total: seen.append((done, total)),
    )
    assert [v.survey.hits for v in shared.views] == [v.survey.hits for v in alone.views]
    assert [v.name for v in shared.views] == [v.name for v in alone.views]
    assert seen[-1][0] == seen[-1][1] == alone.size


def test_progress_reaches_the_end(job: Callable[..., Path]) -> None:
    folder = job({"a.log": ROW * 100, "b.log": ROW * 300})
    seen: list[tuple[int, int]] = []
    collect(
        [folder],
        ScanPlan(SIGNATURES),
        on_progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == sorted(seen)
    assert seen[-1] == (len(ROW) * 400, len(ROW) * 400)
