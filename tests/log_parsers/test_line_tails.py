"""Ranks at the end of lines: the forms of `labels.yaml`, and when a file has one."""

from __future__ import annotations

import re

import pytest

from rerail.cached_yaml import load_cached
from rerail.log_parsers.early_origin import with_tail
from rerail.log_parsers.labels import PATH
from rerail.log_parsers.line_tails import Tail, may_end_so, tail_of
from rerail.log_parsers.prefixes import NOWHERE, Origin, parse_line

FORMS = load_cached(PATH)["tails"]
TAIL = Tail("(rank=", ")")


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form["id"])
def test_forms_match_their_examples(form: dict[str, str | list[str]]) -> None:
    pattern = re.compile(f"{form['pattern']}$")
    assert form["source"]
    for text in form["matches"]:
        found = pattern.search(text)
        assert found is not None and found["rank"] == "11"
        assert text[-3:].rstrip(load_cached(PATH)["tails_close"]).endswith("1")
    assert not any(pattern.search(text) for text in form["must_not_match"])


def origin(lines: list[str]) -> Origin:
    return with_tail(NOWHERE, "\n".join([*lines, ""]).encode())


def test_nearly_all_lines_end_so() -> None:
    lines = [f"step {n} loss 2.1 (rank={n % 4})" for n in range(20)]
    raised = ["Traceback (most recent call last):", '  File "a.py", line 3, in f', "    f()"]
    assert origin([*lines, *raised]).tail == TAIL
    assert origin([*lines, *("eval of another kind" for _ in range(9))]).tail is None


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form["id"])
def test_what_may_end_so_is_told_before_lines_are_cleaned(form: dict[str, list[str]]) -> None:
    lines = [text.encode() for text in form["matches"]]
    assert may_end_so(lines)
    assert may_end_so([line + b" \x00\r" for line in lines])
    assert may_end_so([b"\x1b[0m" + line + b"\x1b[0m" for line in lines])
    assert may_end_so([*lines, b"    f()", b""])
    assert not may_end_so([*lines, *(b"eval of another kind" for _ in range(9))])


def test_a_file_of_one_rank_or_with_labels_in_front_has_none() -> None:
    assert origin([f"step {n} loss 2.1 (rank=3)" for n in range(20)]).tail is None
    assert origin([f"[rank{n % 4}]: sent {n} to (rank={n % 3})" for n in range(20)]).tail is None


def test_a_line_is_of_the_rank_behind_its_message_unless_its_label_tells_one() -> None:
    own = Origin(tail=TAIL)
    line = parse_line("a", 1, "2026-03-01 02:00:00 step 3 (rank=17)", origin=own, year=2026)
    assert (line.rank, line.message, line.label) == (17, "step 3", "r17")
    labelled = parse_line("a", 1, "[rank2]: step 3 (rank=17)", origin=own, year=2026)
    assert (labelled.rank, labelled.message) == (2, "step 3 (rank=17)")
    for other in (
        "step 3 (rank=)",
        "step 3 (rank=1234567)",
        "step 3(rank=17)",
        "step 3 (rank=17) x",
    ):
        assert parse_line("a", 1, other, origin=own, year=2026).rank is None


def test_of_several_forms_the_one_of_most_lines_counts() -> None:
    lines = [f"step {n} (rank={n % 4})" for n in range(20)] + ["step 3 rank=1", "step 4 rank=2"]
    assert tail_of(lines, len(lines)) == TAIL


def test_no_more_lines_are_taken_than_show_that_there_is_none() -> None:
    lines = iter([*(["step 3"] * 6), *(f"step {n} (rank={n % 4})" for n in range(14))])
    assert tail_of(lines, 20) is None
    assert next(lines).endswith("(rank=0)")
    late = [*(f"step {n} (rank={n % 4})" for n in range(15)), *(["step 3"] * 5)]
    assert tail_of(late, 20) == TAIL
