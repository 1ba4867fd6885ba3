"""A row's values are known by the titles that a command or the first line of its answer lists."""

from __future__ import annotations

import pytest

from rerail.errors import RuleError
from rerail.knowledge_base.named_columns import by_title
from rerail.knowledge_base.rules import lint, make_rule

ASKED = "$ pdsh -w gn[1-2] nvidia-smi --query-gpu=index,clocks.sm,clocks_throttle_reasons.active --format=csv,noheader"
HEADER = "gn1: index, clocks.current.sm [MHz], clocks_event_reasons.active"


def test_a_command_and_a_header_title_the_same_row() -> None:
    row = "gn1: 3, 345 MHz, 0x0000000000000048"
    asked, titled = by_title(ASKED, row), by_title(HEADER, row)
    assert list(asked.values()) == list(titled.values()) == ["3", "345 MHz", "0x0000000000000048"]
    assert list(titled) == ["index", "clocks.current.sm", "clocks_event_reasons.active"]


def test_what_a_script_puts_in_front_of_a_row_is_no_column() -> None:
    assert by_title(ASKED, "gn1, 3, 345 MHz, 0x0000000000000048")["index"] == "3"


@pytest.mark.parametrize(("titles", "row"), [("no titles here", "1, 2"), (HEADER, "3, 345 MHz")])
def test_what_does_not_fit_tells_nothing(titles: str, row: str) -> None:
    assert by_title(titles, row) == {}


RAW = {"id": "x", "pattern": "a", "role": "context", "tier": "host", "nearby": "b"}


@pytest.mark.parametrize("columns", ["a$", ["a$"], {"a$": 3}])
def test_columns_that_are_no_pairs_of_texts_are_refused_by_name(columns: object) -> None:
    with pytest.raises(RuleError, match="'x': columns is no mapping"):
        make_rule(RAW | {"columns": columns}, "x.yaml")


@pytest.mark.parametrize("key", ["columns", "column_fields"])
def test_a_pattern_of_columns_that_does_not_compile_is_a_complaint_by_name(key: str) -> None:
    rule = make_rule(RAW | {key: {"a": "("}}, "x.yaml")
    assert any(f"x.yaml: x: {key}: " in one for one in lint((rule,)))


def test_a_rule_that_asks_columns_must_say_where_they_are_titled() -> None:
    raw = {"id": "x", "pattern": "a", "role": "context", "tier": "host", "columns": {"a$": "b"}}
    with pytest.raises(RuleError, match="nearby"):
        make_rule(raw, "x.yaml")
