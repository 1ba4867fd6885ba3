"""A line of a record of several lines is of the rank that another line of the record names."""

from __future__ import annotations

import pytest

from rerail.log_parsers.records_of_lines import Record, rank_of_record, records


def rank_of_last(text: str) -> int | None:
    """Return the rank of the last line of a text."""
    lines = dict(enumerate(text.splitlines(), 1))
    return rank_of_record(lines[len(lines)], len(lines), lines.get)


@pytest.mark.parametrize("record", records(), ids=lambda record: record.id)
def test_a_record_holds_on_its_examples(record: Record) -> None:
    assert record.matches
    for text in record.matches:
        assert rank_of_last(text) is not None, text
    for text in record.must_not_match:
        assert rank_of_last(text) is None, text


def test_the_record_above_is_that_of_another_task() -> None:
    head = "12:00:01 - distributed.worker - ERROR - Compute Failed"
    first = f"{head}\nKey: fit-rank-2\nException: \"ValueError('a')\""
    second = f"{head}\nKey: fit-7f3a\nException: \"ValueError('a')\""
    assert rank_of_last(first) == 2
    assert rank_of_last(f"{first}\n{second}") is None
