"""A window of a file by byte offset shows the same masked lines as reading the whole file does."""

from itertools import pairwise
from pathlib import Path

import pytest

from rerail.log_parsers import line_marks, window
from rerail.log_parsers.find_lines import between
from rerail.log_parsers.line_marks import Marks
from rerail.log_parsers.scan import make_scanner
from rerail.log_parsers.sources import Source, origin_of
from rerail.log_parsers.survey import survey
from rerail.log_parsers.window import (
    before,
    index_of,
    is_plain,
    number_at,
    offset_of,
    search,
    window_at,
)


@pytest.fixture
def source(tmp_path: Path) -> Source:
    rows = [
        f"2026-03-01 02:00:{i % 60:02d} [rank{i % 8}] step {i} loss 2.{i}" for i in range(20_000)
    ]
    rows[9_000] = "password=hunter2hunter2"
    path = tmp_path / "train.log"
    path.write_text("\n".join(rows))  # the last line has no line end
    return Source(path, path.name, origin_of(path.name))


@pytest.mark.parametrize("number", [1, 2, 4096, 4097, 4098, 8193, 9001, 19_990, 20_000])
def test_a_line_is_found_by_its_number_and_back(source: Source, number: int) -> None:
    offset = offset_of(source.path, number)
    assert number_at(source.path, offset) == number
    window = window_at(source, offset, 5)
    assert list(window.lines) == between(source, number, min(number + 4, 20_000))
    assert window.after == (
        offset_of(source.path, number + 5) if number + 5 <= 20_000 else window.size
    )


def test_a_byte_within_a_line_shows_the_whole_line_and_secrets_stay_masked(source: Source) -> None:
    offset = offset_of(source.path, 9_001)
    window = window_at(source, offset + 7, 1)
    assert window.offset == offset and "hunter2" not in window.lines[0].text
    assert index_of(source.path).lines == 20_000


def test_one_window_back_ends_where_this_one_begins(source: Source) -> None:
    offset = offset_of(source.path, 10_000)
    back = before(source.path, offset, 50)
    assert back == offset_of(source.path, 9_950)
    assert window_at(source, back, 50).after == offset
    assert before(source.path, offset_of(source.path, 3), 50) == 0


def test_a_pattern_is_searched_in_linear_time_from_any_byte(source: Source) -> None:
    found = list(search(source.path, r"step 1999\d loss"))
    assert [number_at(source.path, at) for at in found] == list(range(19_991, 20_001))
    assert list(search(source.path, "step", start=offset_of(source.path, 19_999))) == found[-2:]
    assert len(list(search(source.path, "loss", most=7))) == 7
    assert list(search(source.path, "(x+x+)+y")) == []  # what stalls a backtracking engine
    with pytest.raises(ValueError, match="missing"):
        list(search(source.path, "(open"))


def test_an_empty_file_has_an_empty_window(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(b"")
    window = window_at(Source(path, "x.log", origin_of("x.log")), 0, 10)
    assert window.lines == () and window.after == 0 and is_plain(path)


def marks_of(source: Source, monkeypatch: pytest.MonkeyPatch) -> Marks:
    monkeypatch.setattr(line_marks, "FIRST", 100_000)
    found = survey(source, (), make_scanner((), cache=None), chunk_size=4096)
    return found.marks.kept()


@pytest.mark.parametrize("number", [1, 2, 2_345, 9_001, 19_999, 20_000, 30_000])
def test_from_marks_a_line_is_found_where_counting_finds_it_and_nothing_is_counted(
    source: Source, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = marks_of(source, monkeypatch)
    offset, held = offset_of(source.path, number), number_at(source.path, 777_777)
    assert len(marks) > 5
    monkeypatch.setattr(window, "index_of", None)  # whoever counts the whole file fails
    assert offset_of(source.path, number, marks) == offset
    assert number_at(source.path, offset, marks) == min(number, 20_000)
    assert number_at(source.path, 777_777, marks) == held
    assert window_at(source, offset, 2, marks=marks).lines[0].number == min(number, 20_000)


def test_marks_are_few_and_even_however_large_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    marks = line_marks.LineMarks()
    for line in range(1, 2_000):
        marks.passed(line, (line - 1) * line_marks.FIRST)
    kept = marks.kept()
    gaps = {second[1] - first[1] for first, second in pairwise(kept)}
    assert line_marks.MOST // 2 <= len(kept) <= line_marks.MOST and len(gaps) == 1
    assert all(at == (line - 1) * line_marks.FIRST for line, at in kept)


def test_a_file_with_holes_has_no_marks(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    assert marks_of(source, monkeypatch)
    body = source.path.read_bytes()
    source.path.write_bytes(body[:5_000] + b"\0" * 5_000 + body[5_000:])
    assert marks_of(source, monkeypatch) == ()


def test_a_long_line_in_pieces_is_no_place_of_a_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    marks = line_marks.LineMarks()
    marks.passed(7, 2 * line_marks.FIRST, within=True)
    assert marks.kept() == ()
