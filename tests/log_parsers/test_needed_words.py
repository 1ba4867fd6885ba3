"""What a pattern is said to need stands in every text that it matches, and nothing is found less for it."""

from __future__ import annotations

import re
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rerail.knowledge_base.rules import load_rules, scanned_patterns
from rerail.log_parsers.labels import labels
from rerail.log_parsers.needed_words import WordIndex, needed_words, one_of
from rerail.log_parsers.relaxed import relaxed
from rerail.log_parsers.scan import _ends, _PlainRe

SAID = [
    ("abc", "abc"),
    ("abc?", "ab"),
    ("ab+c", ["all", "ab", "c"]),
    ("abc*d", ["all", "ab", "d"]),
    ("abc{0,3}d", ["all", "ab", "d"]),
    ("abc{2}d", ["all", "abc", "d"]),
    (r"a\.b\d+c", ["all", "a.b", "c"]),
    ("(?:one|three)x", ["all", ["any", "one", "three"], "x"]),
    ("(?:one|three)?xy", "xy"),
    ("(?:one|)xy", "xy"),
    ("(?:one|three)+", ["any", "one", "three"]),
    ("one|three", ["any", "one", "three"]),
    ("one|", None),
    ("[ab]cd", "cd"),
    ("(?i)ABC", ["small", "abc"]),
    ("x(?i:ABC)", ["all", ["small", "abc"], "x"]),
    ("(?P<n>abc)", "abc"),
    ("a(?=bcd)", ["all", "bcd", "a"]),
    ("a(?!bcd)", "a"),
    ("a(?<!bcd)e", ["all", "a", "e"]),
    (r"\x41bc", None),
    (r"(a)\1", None),
    ("(?x) a b", None),
    ("(?>abc)", None),
    ("a{}b", "b"),
    ("a|b)", None),
]


@pytest.mark.parametrize(("pattern", "needed"), SAID)
def test_what_a_pattern_needs(pattern, needed):
    assert needed_words(pattern) == needed


@cache
def patterns() -> list[str]:
    return scanned_patterns(load_rules())


@cache
def examples() -> list[str]:
    rules = load_rules()
    return [text for rule in rules for text in (*rule.matches, *rule.must_not_match)]


@cache
def compiled() -> list[re.Pattern[bytes]]:
    return [re.compile(relaxed(pattern).encode()) for pattern in patterns()]


@cache
def index() -> WordIndex:
    return WordIndex([needed_words(pattern) for pattern in patterns()])


def test_most_rules_need_words_and_most_words_are_long():
    needed = [needed_words(pattern) for pattern in patterns()]
    assert sum(one is not None for one in needed) > 0.98 * len(needed)
    assert len(index()._always) < 0.02 * len(needed)


def test_the_examples_of_all_rules_are_found_as_without_looking_for_words():
    scanner = _PlainRe(patterns())
    lines = [text.encode("utf-8", "surrogateescape") for text in examples()]
    for first in range(0, len(lines), 400):
        chunk = b"\n".join(lines[first : first + 400]) + b"\n"
        every = [(end, at) for at, one in enumerate(compiled()) for end in _ends(one, chunk)]
        assert scanner.candidates(chunk) == every


@settings(max_examples=60)
@given(data=st.data())
def test_a_text_is_found_as_without_looking_for_words(data):
    parts = data.draw(st.lists(st.sampled_from(examples()) | st.text(max_size=20), max_size=4))
    text = "".join(
        part[data.draw(st.integers(0, 5)) :]
        + data.draw(st.sampled_from(["", "\n", " ", "ß", "\0"]))
        for part in parts
    )
    chunk = data.draw(st.sampled_from([text, text.upper(), text.lower()])).encode()
    asked = set(index().may_match(chunk))
    assert [at for at, one in enumerate(compiled()) if at not in asked and one.search(chunk)] == []


PIECES = st.sampled_from(
    ["ab", "c", "D", ".", r"\d", r"\.", "[ab]", "[^c]", "(?:ab|cd)", "(?:ab|)", "(?i:aB)", "(x|yz)", "(?=ab)", "(?!ab)", "^", "$"]
)  # fmt: skip
REPEATS = st.sampled_from(["", "", "", "?", "*", "+", "{0,2}", "{2}", "{1,}?", "+?"])


@settings(max_examples=400)
@given(
    pieces=st.lists(st.tuples(PIECES, REPEATS), max_size=5),
    cut=st.integers(0, 5),
    front=st.sampled_from(["", "(?i)"]),
    text=st.text("abcdxyzABD.1 ", max_size=12),
)
def test_a_text_that_a_pattern_matches_holds_what_it_needs(pieces, cut, front, text):
    words = [
        piece + ("" if piece in "^$" or piece[:3] in ("(?=", "(?!") else times)
        for piece, times in pieces
    ]
    pattern = front + "|".join("".join(part) for part in (words[:cut], words[cut:]) if part)
    needed = needed_words(pattern)
    if re.search(pattern.encode(), text.encode()):
        assert WordIndex([needed]).may_match(text.encode()) == [0], (pattern, needed)
        assert not one_of(needed) or any(word in text for word in one_of(needed))


def test_a_label_needs_what_its_examples_hold():
    for label in labels():
        words = one_of(needed_words(label.text))
        for text in label.matches:
            assert not words or any(word in text for word in words), (label.id, text)
