"""Stamps of every program that writes into a training log, read to the same second."""

from __future__ import annotations

from calendar import timegm
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rerail.log_parsers import timestamps
from rerail.log_parsers.timestamps import BOOT, DAY, WALL, find_stamp, year_in

AT = timegm((2026, 3, 1, 2, 14, 7))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-03-01T02:14:07Z worker up", AT),
        ("2026-03-01 02:14:07,250 INFO step", AT + 0.25),
        ("2026-03-01T02:14:07.123456789Z stdout F hello", AT + 0.123456789),
        ("2026-03-01T03:14:07+01:00 node kernel: x", AT),
        ("2026-03-01T02:44:07.5+0530 x", AT + 0.5 - 18_000),
        ("[2026-03-01 02:14:07] iteration 5/ 100", AT),
        ("[2026/03/01 02:14:07 PM] nope", AT + 12 * 3600),
        ("2026-03-01 12:14:07 AM x", AT - 2 * 3600),
        ("2026/03/01 02:14:07 [error]", AT),
        ("INFO 03/01/2026 02:14:07 loaded", AT),
        ("03/01/26 02:14:07 WARN", AT),
        ("[Sun Mar  1 02:14:07 2026] NVRM: Xid", AT),
        ("Sun Mar  1 02:14:07 EST 2026", AT),
        ("Mar 1, 2026 02:14:07 x", AT),
        ("[rank3]:[E301 02:14:07.500000000 ProcessGroupNCCL.cpp:632]", AT + 0.5),
        ("[E0301 02:14:07.5 ProcessGroupNCCL.cpp:632]", AT + 0.5),
        ("[rank13]: W20260301 02:14:07 118817 dinov2 loaders.py:88] no batch", AT),
        ("W0301 02:14:07.000000 140 torch/distributed/elastic/agent.py:10]", AT),
        ("Mar  1 02:14:07 node-17 kernel: x", AT),
        ("03-01 02:14:07 INFO x", AT),
        ('{"time_ms": 1772331247000, "key": "run_start"}', AT),
        ("1772331247.25 epoch stamped", AT + 0.25),
        ("[1772331247.250000] x", AT + 0.25),
    ],
)
def test_a_stamp_is_read(text: str, seconds: float) -> None:
    stamp = find_stamp(text, year=2026)
    assert stamp is not None
    assert stamp.clock == WALL
    assert stamp.seconds == pytest.approx(seconds, abs=1e-3)


@pytest.mark.parametrize(
    "text",
    [
        "no time at all",
        "loss: 3.1415 lr: 1.0e-4",
        "iteration 12/ 100 | elapsed 00:14",
        "version 2026.03.01",
        "2026-13-41 02:14:07 is no date",
        "ratio 16:9, port 127.0.0.1:29500",
        "1772331247 without a fraction",
        "",
    ],
)
def test_what_is_no_stamp(text: str) -> None:
    assert find_stamp(text, year=2026) is None


def test_a_kernel_stamp_is_on_its_own_clock() -> None:
    stamp = find_stamp("[ 8123.456789] NVRM: Xid (PCI:0000:9b:00): 79", year=2026)
    assert stamp is not None
    assert (stamp.seconds, stamp.clock) == (8123.456789, BOOT)


def test_the_first_stamp_of_a_line_wins() -> None:
    text = "Mar  1 02:14:07 node-1 app: retry at 2027-01-01 00:00:00"
    stamp = find_stamp(text, year=2026)
    assert stamp is not None
    assert stamp.seconds == AT
    assert text[stamp.start : stamp.end] == "Mar  1 02:14:07"
    assert not stamp.has_year


def test_a_stamp_without_a_year_takes_the_year_given() -> None:
    first = find_stamp("Mar  1 02:14:07 x", year=2025)
    second = find_stamp("Mar  1 02:14:07 x", year=2026)
    assert first is not None
    assert second is not None
    assert second.seconds - first.seconds == 365 * 86_400


def test_a_stamp_far_to_the_right_is_not_searched() -> None:
    assert find_stamp("x" * 500 + " 2026-03-01 02:14:07", year=2026) is None


@pytest.mark.parametrize(
    ("text", "year"),
    [
        ("2024-11-05 10:00:00 x", 2024),
        ("[Tue Nov  5 10:00:00 2024] x", 2024),
        ('{"time_ms": 1730800000000}', 2024),
        ("Nov  5 10:00:00 no year", None),
        ("E1105 10:00:00.1 glog", None),
    ],
)
def test_the_year_of_a_line(text: str, year: int | None) -> None:
    assert year_in(text) == year


@given(st.text(max_size=120))
def test_any_text_is_read_or_left(text: str) -> None:
    stamp = find_stamp(text, year=2026)
    assert stamp is None or 0 <= stamp.start < stamp.end <= len(text)


@given(
    st.integers(timegm((2000, 1, 1, 0, 0, 0)), timegm((2040, 1, 1, 0, 0, 0))), st.integers(0, 999)
)
def test_every_iso_time_is_read_exactly(seconds: int, millis: int) -> None:
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
    stamp = find_stamp(f"[{text}.{millis:03}] x", year=1999)
    assert stamp is not None
    assert stamp.seconds == pytest.approx(seconds + millis / 1000, abs=1e-5)


@given(
    st.lists(
        st.sampled_from(
            ["2026-03-04 01:00:01.84", "03/04/2026 01:00:01", "13/44/26 01:00:01", "Mar  4 01:00:01", "[", " ", "] ", "x:",
             "E0304 01:00:01.5", "03-04 01:00:01", "[ 12.345678]", '"time_ms": 1745261849508', "1.745261e+09", "2026",
             "Tue Mar 31 25:00:01 2026", "1745261849.25", "12:34:56", "loss 2.5 - "]
        ),
        max_size=7,
    ).map("".join)
)  # fmt: skip
def test_the_first_stamp_is_that_of_each_form_asked_one_by_one(text: str) -> None:
    if timestamps._CLOCK.search(text):
        asked = timestamps._first_stamp(text, timestamps._FORMS, 2026)
        assert find_stamp(text, year=2026) == (asked or timestamps._time_of_day(text))


@pytest.mark.parametrize(
    "text",
    ["02:14:07.250 [rank3] x", "[02:14:07.250] x", "w-3  02:14:07.250 x", "w-3 | [02:14:07.250] x"],
)
def test_a_time_of_day_is_on_a_clock_of_its_own(text: str) -> None:
    stamp = find_stamp(text, year=2026)
    assert stamp is not None
    assert (stamp.seconds, stamp.clock) == (2 * 3600 + 14 * 60 + 7.25, DAY)


@pytest.mark.parametrize(
    "text",
    [
        "elapsed 02:14:07 left",
        "eta: 1 day, 02:14:07",
        "02:14:07<05:00:00, 3.1s/it",
        "it took 02:14:07",
    ],
)
def test_a_length_is_no_time_of_day(text: str) -> None:
    assert find_stamp(text, year=2026) is None
