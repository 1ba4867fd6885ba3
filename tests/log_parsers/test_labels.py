"""Every label holds on its own examples, and a wrong one is named with its file."""

from __future__ import annotations

import pytest

from rerail.errors import RuleError
from rerail.log_parsers.labels import Label, labels, make_label, peel
from rerail.log_parsers.prefixes import parse_line
from rerail.log_parsers.timestamps import find_stamp


def found_in(text: str) -> set[str]:
    """Return the names of the labels that are peeled off a line, or would be at any of its words."""
    stamp = find_stamp(text, year=2026)
    starts = [0, *(i + 1 for i, sign in enumerate(text) if sign == " ")]
    hits = (peel(text, at, at == 0, stamp) for at in starts)
    return {hit[0].id for hit in hits if hit is not None}


@pytest.mark.parametrize("label", labels(), ids=lambda label: label.id)
def test_a_label_holds_on_its_examples(label: Label) -> None:
    assert label.matches
    for text in label.matches:
        assert label.id in found_in(text), text
    for text in label.must_not_match:
        assert parse_line("a.log", 1, text, year=2026).node is None, text


def test_names_of_labels_are_unique() -> None:
    names = [label.id for label in labels()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ({"id": "x", "kind": "own", "pattern": "a(?P<colour>b)"}, "colour"),
        ({"id": "x", "kind": "strange", "pattern": "a"}, "kind"),
        ({"id": "x", "kind": "own", "pattern": "a", "begin": "["}, "'begin'"),
    ],
)
def test_a_label_that_is_not_valid_is_named_with_its_file(raw: dict[str, str], why: str) -> None:
    with pytest.raises(RuleError, match=f"mine.yaml: label 'x'.*{why}"):
        make_label(raw, "mine.yaml")


def test_the_launcher_s_name_of_a_host_counts_and_not_the_container_s() -> None:
    line = parse_line("a.log", 1, "node01: VM-0-14:108:593 [2] NCCL WARN x", year=2026)
    assert (line.node, line.pid) == ("node01", 108)
