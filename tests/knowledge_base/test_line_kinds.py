"""Lines of one kind are looked at once: what a phrase is found in does not depend on that."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rerail.knowledge_base.case import Case
from rerail.knowledge_base.phrases import Phrase, phrase_in_bytes, phrases
from rerail.log_parsers.line_kinds import LineKinds
from rerail.log_parsers.sources import Source
from rerail.log_parsers.survey import FileSurvey
from rerail.log_parsers.view import LogView

EXAMPLES = sorted(
    {text for one in phrases().values() for text in (*one.matches, *one.must_not_match)}
)


def view_of(lines: list[bytes], name: str = "a.log") -> LogView:
    kept = dict(enumerate(lines, 1))
    return LogView(FileSurvey(Source(Path(name), name), kept=kept), 0, year=2026)


@st.composite
def logs(draw: st.DrawFn) -> list[bytes]:
    """Examples of all phrases, with other digits, coloured, cut, and told by several frames of one line."""
    lines = []
    for text in draw(st.lists(st.sampled_from(EXAMPLES), min_size=1, max_size=12)):
        digits = draw(st.text("0123456789", min_size=8, max_size=8))
        for _ in range(draw(st.integers(1, 3))):
            other = "".join(digits[int(sign)] if sign in "01234567" else sign for sign in text)
            line = draw(st.sampled_from([text, other])).encode()
            at = draw(st.integers(0, len(line)))
            how = draw(st.sampled_from(["as it is", "coloured", "frame"]))
            if how == "coloured":
                line = line[:at] + b"\x1b[31m" + line[at:]
            elif how == "frame":
                line = line + b"\r" + line[:at]
            lines.append(line)
    return lines


@pytest.mark.parametrize("one", phrases().values(), ids=lambda one: one.id)
def test_a_phrase_is_found_in_its_examples(one: Phrase) -> None:
    if not one.pattern.isascii():
        pytest.skip("it is looked for in text, not in bytes")
    view = view_of([text.encode() for text in (*one.matches, *one.must_not_match)])
    told = phrase_in_bytes(one.id)
    found = list(Case([view], [], {}).lines_with(view, one.id))
    assert found == [n for n, raw in view.survey.kept.items() if told.search(raw)]


@given(first=logs(), second=logs(), name=st.sampled_from(sorted(phrases())))
def test_what_is_found_is_what_a_search_in_every_line_finds(
    first: list[bytes], second: list[bytes], name: str
) -> None:
    views = [view_of(first), view_of(second, "b.log")]
    case, told = Case(views, [], {}), phrase_in_bytes(name)
    for view in views:
        there = [n for n, raw in view.survey.kept.items() if told.search(raw)]
        assert list(case.lines_with(view, name)) == there
        may = set(case.lines_that_may_hold(view, name))
        assert may >= {n for n in view.numbers if told.search((view.text(n) or "").encode())}


def test_lines_beyond_those_that_are_told_apart_are_always_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rerail.log_parsers.line_kinds._MOST", 2)
    view = view_of([b"one", b"two", b"three", b"four"])
    kinds = LineKinds()
    assert list(kinds.that_may(view, "q", lambda text: text == b"one")) == [1, 3, 4]
