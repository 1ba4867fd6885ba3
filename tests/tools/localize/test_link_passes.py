"""Validation passes over the links of a ring or tree (FALCON test E6)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rerail.tools.localize.link_passes import ring_passes, slow_links, tree_passes


def test_the_published_ring_of_four() -> None:
    assert ring_passes([3, 0, 1, 2]) == [[(3, 0), (1, 2)], [(0, 1), (2, 3)]]


def test_an_odd_ring_takes_three_passes() -> None:
    assert len(ring_passes([0, 1, 2, 3, 4])) == 3


@given(st.integers(2, 65))
def test_each_link_once_and_no_rank_twice_in_a_pass(count: int) -> None:
    passes = ring_passes(range(count))
    assert sorted(p for one in passes for p in one) == sorted(
        (i, (i + 1) % count) for i in range(count)
    )
    for one in passes:
        ranks = [rank for pair in one for rank in pair]
        assert len(ranks) == len(set(ranks))
    assert len(passes) == (2 if count % 2 == 0 else 3)


@given(st.integers(2, 64))
def test_a_tree_takes_four_passes_at_most(count: int) -> None:
    parents = {rank: (rank - 1) // 2 for rank in range(1, count)}
    passes = tree_passes(parents)
    assert len(passes) <= 4
    assert sorted(p for one in passes for p in one) == sorted(parents.items())
    for one in passes:
        ranks = [rank for pair in one for rank in pair]
        assert len(ranks) == len(set(ranks))


def test_the_slow_link_stands_out() -> None:
    times = {(0, 1): 1.3, (1, 2): 1.0, (2, 3): 1.05, (3, 0): 1.0}
    assert slow_links(times) == [(0, 1)]


def test_bad_rings_and_trees_are_refused() -> None:
    with pytest.raises(ValueError, match="two or more"):
        ring_passes([1])
    with pytest.raises(ValueError, match="circle"):
        tree_passes({1: 2, 2: 1})
    with pytest.raises(ValueError, match="at most two"):
        tree_passes({1: 0, 2: 0, 3: 0})
