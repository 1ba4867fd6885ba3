"""What stands for a library that takes long to load gives what the library gives."""

import statistics
from calendar import timegm

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rerail.log_parsers.middle import median
from rerail.log_parsers.timestamps import _days


@given(st.lists(st.integers(-99, 99) | st.floats(-1e6, 1e6), min_size=1))
def test_the_median(values):
    assert median(values) == statistics.median(values)
    assert median(value for value in values) == median(values)


def test_no_values_have_none():
    with pytest.raises(ValueError, match="no values"):
        median([])


@given(year=st.integers(1900, 2150), month=st.integers(1, 12), day=st.integers(1, 31))
def test_the_days_since_1970(year, month, day):
    assert _days(year, month, day) * 86_400 == timegm((year, month, day, 0, 0, 0))
