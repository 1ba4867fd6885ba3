"""Exact sets of faulty and slow parts on simulated clusters of every awkward size."""

import random
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rerail.tools.health.digests import by_majority, product_is_consistent
from rerail.tools.health.find_faulty import find_faulty
from rerail.tools.health.find_slow import find_slow
from rerail.tools.health.pairs import all_rounds, pairs_of_round

SIZES = (2, 3, 8, 16, 63, 64, 128)


def prober(bad, probability=1.0, draw=None):
    def probe(pairs, repeats):
        assert len({node for pair in pairs for node in pair}) == 2 * len(pairs), "not disjoint"
        return {
            pair
            for pair in pairs
            if any(
                node in bad and (draw is None or draw.random() < probability)
                for node in pair
                for _ in range(repeats)
            )
        }

    return probe


@pytest.mark.parametrize("count", [*range(2, 18), 63, 64])
def test_every_two_nodes_meet_exactly_once(count):
    seen = [pair for pairs in all_rounds(count) for pair in pairs]
    assert sorted(seen) == sorted(combinations(range(count), 2))


@given(st.integers(4, 80), st.data())
def test_the_exact_set_is_found_wherever_any_pair_works(count, data):
    bad = data.draw(st.sets(st.integers(0, count - 1)))
    found = find_faulty(count, prober(bad), repeats=1)
    if count - len(bad) >= 2:
        assert set(found.faulty) == bad and not found.abstained
    else:
        assert not found.faulty and found.abstained


def test_two_rounds_are_enough_for_few_faults():
    for count in SIZES[2:]:
        bad = set(range(0, count, 8))
        assert find_faulty(count, prober(bad)).rounds == 2


@pytest.mark.parametrize("count", SIZES)
def test_when_nothing_works_nobody_is_accused(count):
    found = find_faulty(count, prober(set(range(count))))
    assert found.faulty == () and found.abstained and len(found.suspects) == count


def test_one_bad_node_of_two_cannot_be_named():
    found = find_faulty(2, prober({1}))
    assert (found.faulty, found.suspects) == ((), (0, 1))


def test_three_repeats_find_what_shows_only_sometimes():
    def share(repeats):
        draw = random.Random(1)
        hits = sum(
            find_faulty(16, prober({5}, 0.8, draw), repeats=repeats).faulty == (5,)
            for _ in range(2000)
        )
        return hits / 2000

    assert share(1) == pytest.approx(0.64, abs=0.04)
    assert share(3) == pytest.approx(0.98, abs=0.02)


def speeds(count, slow_nodes, slow_links, noise, draw):
    measured = {}
    for number in range(3):
        for pair in pairs_of_round(count, number):
            value = min(slow_nodes.get(node, 1.0) for node in pair) * slow_links.get(pair, 1.0)
            measured[pair] = 1e9 * value * draw.gauss(1.0, noise)
    return measured


def test_slow_nodes_and_slow_links_are_told_apart():
    draw = random.Random(2)
    link = pairs_of_round(16, 1)[3]
    node = next(n for n in range(16) if n not in link)
    found = find_slow(speeds(16, {node: 0.6}, {link: 0.5}, 0.01, draw))
    assert list(found.nodes) == [node] and list(found.links) == [link]


def test_a_healthy_cluster_with_noise_has_no_slow_part():
    draw = random.Random(3)
    for _ in range(200):
        found = find_slow(speeds(32, {}, {}, 0.02, draw))
        assert not found.nodes and not found.links


def test_a_majority_names_the_wrong_one_and_a_tie_names_nobody():
    assert by_majority({"a": ("x", "x"), "b": ("x", "x"), "c": ("y", "y")}).wrong == ("c",)
    assert by_majority({"a": ("x",), "b": ("y",)}).abstained
    one = by_majority({"a": ("x", "x"), "b": ("x", "z"), "c": ("x", "x")})
    assert (one.wrong, one.unstable) == ((), ("b",))


def test_the_checksum_sees_a_large_error_and_not_rounding():
    import numpy as np

    draw = np.random.default_rng(4)
    left, right = draw.normal(size=(64, 64)), draw.normal(size=(64, 64))
    product = (left.astype(np.float32) @ right.astype(np.float32)).astype(np.float64)
    assert product_is_consistent(left, right, product, 1e-5)
    product[3, 7] += 1.0
    assert not product_is_consistent(left, right, product, 1e-5)
