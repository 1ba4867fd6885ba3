"""The rules that are kept as they came out of the check are those that the files say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rerail.errors import RuleError
from rerail.knowledge_base import prepared_rules, rules
from rerail.knowledge_base.prepared_rules import prepared
from rerail.knowledge_base.rules import FOLDER, Rule, parse_rules


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(prepared_rules, "cache_folder", lambda: tmp_path / "cache")
    return tmp_path / "cache"


def kept(cache: Path) -> list[Path]:
    return sorted(cache.glob("rules-*.json"))


def test_what_is_kept_is_what_was_made(cache):
    files = sorted(FOLDER.glob("*.yaml"))
    made = rules._shipped(files)
    first = prepared(Rule, files, lambda: made)
    again = prepared(Rule, files, lambda: pytest.fail("nothing has changed"))
    assert list(first) == list(again) == made and len(made) > 1000
    assert [type(x) for x in again[0].__getstate__()] == [type(x) for x in made[0].__getstate__()]


RULE = {
    "id": "a-b",
    "pattern": "x",
    "role": "context",
    "tier": "host",
    "marks": ["waited"],
    "matches": ["x", "xy"],
}


def test_a_changed_file_and_a_torn_one_are_read_anew(cache, tmp_path):
    source = tmp_path / "some.yaml"
    source.write_text("one")
    calls = []

    def make():
        calls.append(1)
        return parse_rules({"schema_version": 1, "rules": [RULE]}, "some.yaml")

    first = prepared(Rule, [source], make)
    assert list(prepared(Rule, [source], make)) == first and len(calls) == 1
    source.write_text("another")
    prepared(Rule, [source], make)
    assert len(calls) == 2 and len(kept(cache)) == 2
    whole = json.loads(kept(cache)[0].read_bytes())
    for torn in (
        "",
        "[1]",
        "{}",
        '{"id": 3}',
        json.dumps(whole | {"role": ["unknown"]}),
        json.dumps(whole | {"leaf": []}),
    ):
        for path in kept(cache):
            path.write_text(torn)
        assert list(prepared(Rule, [source], make)) == first
    assert len(calls) == 8


def test_few_are_kept(cache, tmp_path):
    source = tmp_path / "some.yaml"
    for at in range(8):
        source.write_text("x" * at)
        prepared(
            Rule, [source], lambda: parse_rules({"schema_version": 1, "rules": [RULE]}, "some.yaml")
        )
    assert len(kept(cache)) == 4


def test_a_wrong_rule_is_not_kept(cache, tmp_path):
    source = tmp_path / "some.yaml"
    source.write_text("x")
    with pytest.raises(RuleError):
        prepared(
            Rule,
            [source],
            lambda: parse_rules(
                {"schema_version": 1, "rules": [RULE | {"role": "no"}]}, "some.yaml"
            ),
        )
    assert kept(cache) == []
