"""The rule catalogue: well formed, its examples hold on every engine, and it changes only on purpose.

To accept a changed catalogue: UPDATE_SNAPSHOTS=1 pytest tests/knowledge_base/test_catalogue.py
"""

import json
import os
from pathlib import Path

import pytest

from rerail.domain.diagnosis import Action
from rerail.domain.evidence import Role
from rerail.knowledge_base.catalogues import KINDS, lookup
from rerail.knowledge_base.coded_leaves import CODED_LEAVES
from rerail.knowledge_base.rule_tests import run_examples
from rerail.knowledge_base.rules import lint, load_rules, make_rule, parse_rules
from rerail.knowledge_base.taxonomy import leaves

SNAPSHOT = Path(__file__).parents[1] / "data" / "rule_catalogue.json"


def test_no_complaints():
    assert lint(load_rules()) == []


def test_every_leaf_is_reachable():
    assert set(leaves()) - {r.leaf for r in load_rules()} - CODED_LEAVES == set()
    assert len(leaves()) == 98


def test_catalogue_is_frozen():
    now = {r.id: [r.leaf, str(r.role), str(r.tier)] for r in load_rules()}
    if os.environ.get("UPDATE_SNAPSHOTS"):
        SNAPSHOT.write_text(json.dumps(now, indent=0, sort_keys=True) + "\n")
    assert json.loads(SNAPSHOT.read_text()) == now


@pytest.mark.parametrize("engine", ["hyperscan", "re2"])
def test_examples_hold(engine):
    pytest.importorskip(engine)
    failures = run_examples(load_rules(), engine=engine)
    assert [(f.rule.id, f.why) for f in failures] == []


def test_an_example_that_does_not_match_is_reported():
    rule = make_rule(
        {"id": "x", "pattern": "spam and eggs", "role": "initiating", "tier": "library", "leaf": "cuda_oom",
         "matches": ["no such words"], "must_not_match": ["spam and eggs"]}, "t.yaml")  # fmt: skip
    assert [f.why for f in run_examples([rule])] == [
        "the pattern does not match",
        "it fires and must not",
    ]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"leaf": "nope"}, "unknown leaf"),
        ({"role": "loud"}, "loud"),
        ({"patern": "x"}, "unknown key"),
        ({"action": "reboot"}, "reboot"),
    ],
)
def test_a_bad_rule_names_file_and_key(change, word):
    from rerail.errors import RuleError

    raw = {
        "id": "x",
        "pattern": "a",
        "role": "initiating",
        "tier": "library",
        "leaf": "cuda_oom",
        **change,
    }
    with pytest.raises(RuleError, match=word) as caught:
        parse_rules({"schema_version": 1, "rules": [raw]}, "site.yaml")
    assert "site.yaml" in str(caught.value)


def test_lint_finds_what_engines_cannot_take():
    rule = make_rule(
        {"id": "Bad_Id", "pattern": "(?<=x)y", "role": "context", "tier": "library"}, "t.yaml"
    )
    text = " ".join(lint((rule,)))
    assert "look-around" in text and "kebab" in text and "no source" in text


def test_all_xids_of_the_table_have_a_rule():
    ids = {r.id for r in load_rules()}
    assert {f"xid-{c}" for c in (13, 31, 43, 45, 48, 63, 64, 74, 79, 94, 95, 119, 149, 154)} <= ids
    assert sum(i.startswith("xid-") for i in ids) >= 109


@pytest.mark.parametrize(
    ("kind", "code", "leaf"),
    [
        ("xid", "79", "gpu_fallen_off_bus"),
        ("ib", "12", "ib_retry_exceeded"),
        ("exit", "139", "process_segfault"),
        ("exit", "0:125", "cgroup_oom_kill"),
    ],
)
def test_lookup(kind, code, leaf):
    found = lookup(kind, code)
    assert found is not None and found.leaf == leaf


def test_lookup_of_an_unknown_code():
    assert all(lookup(kind, "987654") is None for kind in KINDS)


def test_actions_of_the_taxonomy_are_in_the_catalogue():
    assert {leaf.action for leaf in leaves().values()} <= set(Action)
    assert all(r.role is not Role.INITIATING or r.leaf for r in load_rules())
