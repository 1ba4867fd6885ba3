"""Who owns the time, and which part of a collective moves data."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rerail.tools.profiles.critical_duration import critical_span
from rerail.tools.profiles.critical_path import Cover, first_come, innermost


def test_the_waiting_head_of_a_collective_is_cut_off() -> None:
    use = np.zeros(400)
    use[20] = 0.9
    use[250:380] = 0.8
    use[300:305] = 0.0
    assert critical_span(use) == (250, 380, 5)


def test_a_collective_that_moved_nothing_has_no_critical_part() -> None:
    assert critical_span(np.zeros(10)) == (0, 0, 0)
    assert critical_span(np.array([np.nan, 1.0, np.nan])) == (1, 2, 0)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([0.0, 0.0, 0.0, 0.5, 1.0]), min_size=1, max_size=60))
def test_the_gap_is_the_smallest_that_holds_four_fifths(values: list[float]) -> None:
    use = np.array(values)
    first, end, gap = critical_span(use)
    held = use[first:end].sum()
    assert held >= 0.8 * use.sum() - 1e-9
    for g in range(gap):
        pieces, start = [], None
        zeros = 0
        for i, value in enumerate([*use, *[0.0] * (g + 2)]):
            if value > 0:
                start = i if start is None else start
                zeros = 0
            elif start is not None:
                zeros += 1
                if zeros > g:
                    pieces.append(use[start : i + 1].sum())
                    start = None
        assert max(pieces, default=0) < 0.8 * use.sum()


spans = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)), min_size=1, max_size=20)


@settings(max_examples=200, deadline=None)
@given(spans, st.lists(st.integers(-5, 90), min_size=1, max_size=10))
def test_a_cover_counts_each_moment_once(given_spans: list[tuple[int, int]], at: list[int]) -> None:
    start = np.array([float(s) for s, _ in given_spans])
    end = np.array([float(s + d) for s, d in given_spans])
    seconds = {m for s, d in given_spans for m in range(s, s + d)}
    assert Cover(start, end).before(np.array(at, dtype=float)).tolist() == [
        sum(m < t for m in seconds) for t in at
    ]
    order = np.argsort(start, kind="stable")
    own, own_end = first_come(start[order], end[order])
    assert (own_end - own).clip(0).sum() == len(seconds)


def test_a_call_owns_its_time_less_that_of_its_children() -> None:
    start, end = np.array([0.0, 2.0, 3.0, 6.0, 0.0]), np.array([10.0, 5.0, 4.0, 9.0, 4.0])
    lane = np.array([0, 0, 0, 0, 1])
    assert innermost(start, end, lane, end - start).tolist() == [4.0, 2.0, 1.0, 3.0, 4.0]
