"""The taxonomy is complete, and every leaf says what is right when nothing more is known."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from rerail.assistant.presentation.words import PATH as WORDS
from rerail.cached_yaml import load_cached
from rerail.domain.diagnosis import Action, Layer
from rerail.knowledge_base.coded_leaves import CODED_LEAVES
from rerail.knowledge_base.taxonomy import NO_FAILURE, Kind, Leaf, category_titles, leaves


@pytest.mark.parametrize("leaf", leaves().values(), ids=list(leaves()))
def test_a_leaf_is_whole(leaf: Leaf) -> None:
    assert re.fullmatch(r"[a-z0-9]+(?:_[a-z0-9]+)*", leaf.id)
    assert len(leaf.meaning) > 8
    assert leaf.category in category_titles()
    assert isinstance(leaf.kind, Kind)
    assert isinstance(leaf.layer, Layer)
    assert leaf.action in Action


def test_no_category_is_empty() -> None:
    assert {leaf.category for leaf in leaves().values()} == set(category_titles())


def test_no_failure_is_a_verdict_and_no_leaf() -> None:
    assert NO_FAILURE not in leaves()


def test_what_a_leaf_explains_are_leaves_and_every_leaf_says_it() -> None:
    assert [x.id for x in leaves().values() if not x.explains or x.explains - set(leaves())] == []


def test_no_program_and_no_waiting_explains_a_broken_machine() -> None:
    machines = {x.id for x in leaves().values() if "machine" in x.traits}
    causes = {x.category for x in leaves().values() if x.explains & machines}
    assert causes == {"hardware_gpu", "gpu_memory_ecc", "nvlink_nvswitch", "container_driver"}


def test_leaves_that_code_concludes_exist() -> None:
    assert set(leaves()) >= CODED_LEAVES


def test_every_kind_and_layer_is_used() -> None:
    assert set(Counter(leaf.kind for leaf in leaves().values())) == set(Kind)
    assert set(Counter(leaf.layer for leaf in leaves().values())) == set(Layer)


def test_a_fault_of_user_code_never_drains_a_node_by_default() -> None:
    node = {Action.DRAIN_NODE, Action.EXCLUDE_NODE}
    assert [x.id for x in leaves().values() if x.layer is Layer.SCRIPT and x.action in node] == []


def test_every_leaf_has_a_name_for_people() -> None:
    names = load_cached(WORDS)["types"]
    assert set(names) == set(leaves())
    assert [name for name in names.values() if "_" in name] == []
    assert len(set(names.values())) == len(names)


def test_every_action_has_words_for_the_engineer() -> None:
    assert set(load_cached(WORDS)["actions"]) == {str(action) for action in Action}
