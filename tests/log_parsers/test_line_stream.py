"""Whose line a text is: each entry of `line_stream.yaml` reads its examples, and holds one of its words."""

from __future__ import annotations

import re
from re import _constants as constants  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import pytest

from rerail.cached_yaml import load_cached
from rerail.domain.evidence import Stream
from rerail.log_parsers.line_stream import PATH, stream_of

ENTRIES = [pytest.param(one, id=one["stream"]) for one in load_cached(PATH)["streams"]]


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_entry_tells_its_examples(entry: dict[str, Any]) -> None:
    assert entry["source"] and entry["matches"] and entry["must_not_match"]
    assert {stream_of(text) for text in entry["matches"]} == {Stream(entry["stream"])}
    assert not any(re.search(entry["pattern"], text) for text in entry["must_not_match"])


@pytest.mark.parametrize("entry", ENTRIES)
def test_whatever_a_pattern_finds_holds_one_of_the_words_that_are_asked_for_first(
    entry: dict[str, Any],
) -> None:
    for said in _alternatives(parser.parse(entry["pattern"])):
        assert any(word in said for word in entry["words"]), said


def _alternatives(items: Any) -> list[str]:
    """Return a text for each way through a pattern, with the least of what repeats and one sign of each class."""
    said = [""]
    for operator, value in items:
        if operator is constants.LITERAL:
            more = [chr(value)]
        elif operator is constants.BRANCH:
            more = [text for branch in value[1] for text in _alternatives(branch)]
        elif operator is constants.SUBPATTERN:
            more = _alternatives(value[3])
        elif operator is constants.MAX_REPEAT:
            more = [""] if value[0] == 0 else _alternatives(value[2])
        elif operator is constants.IN:
            more = [chr(what) for kind, what in value if kind is constants.LITERAL] or ["\0"]
        else:
            more = [""]
        said = [begun + end for begun in said for end in more]
    return said
