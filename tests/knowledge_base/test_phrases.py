"""Every phrase holds on its own examples and on no counter-example; none is unused, and no wording stands in code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from rerail.errors import RuleError
from rerail.knowledge_base import phrases as module
from rerail.knowledge_base.phrases import Phrase, phrase, phrases, says

ROOT = Path(module.__file__).parent
# What is structure, and no wording of a program: numbers, addresses, punctuation, placeholders of our own.
STRUCTURE = {
    "causality/diagnosis_record.py": 1,
    "causality/end_of_log.py": 1,
    "causality/left_behind.py": 3,
    "causality/timer_tables.py": 3,
    "placement/column_tables.py": 7,
    "placement/environments.py": 7,
    "placement/headings.py": 4,
    "placement/host_aliases.py": 1,
    "placement/identities.py": 1,
    "placement/identity_statements.py": 3,
    "placement/names.py": 2,
    "placement/node_sources.py": 1,
    "placement/own_words.py": 2,
    "placement/pod_ranks.py": 3,
    "placement/rank_sources.py": 1,
    "placement/rank_tables.py": 15,
    "placement/roster_lines.py": 13,
    "placement/rosters.py": 1,
    "placement/self_descriptions.py": 1,
    "placement/who_is_who.py": 1,
}


@pytest.mark.parametrize("one", phrases().values(), ids=lambda one: one.id)
def test_a_phrase_holds_on_its_examples(one: Phrase) -> None:
    assert one.source
    assert one.matches
    assert one.must_not_match
    assert all(says(one.id, text) for text in one.matches), one.matches
    assert not any(says(one.id, text) for text in one.must_not_match), one.must_not_match


def test_every_phrase_is_asked_for() -> None:
    code = "".join(path.read_text() for path in ROOT.rglob("*.py"))
    tables = (ROOT / "placement" / "rank_tables.yaml").read_text()
    rules = "".join(path.read_text() for path in (ROOT / "rules").glob("*.yaml"))
    vetoes = set(re.findall(r"[\w-]+", " ".join(re.findall(r"unless_says: \[(.*)\]", rules))))
    unused = [
        name
        for name in phrases()
        if f'"{name}"' not in code and f"unless: {name}\n" not in tables and name not in vetoes
    ]
    assert not unused


@pytest.mark.parametrize("folder", ["causality", "placement"])
def test_no_wording_of_a_program_stands_in_code(folder: str) -> None:
    for path in sorted((ROOT / folder).glob("*.py")):
        name = str(path.relative_to(ROOT))
        calls = [
            node
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Call)
            and re.match(r"re\.(compile|search|match)|lazy$", ast.unparse(node.func))
        ]
        assert len(calls) <= STRUCTURE.get(name, 0), name


def test_a_wrong_phrase_names_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    phrases.cache_clear()
    monkeypatch.setattr(module, "load_cached", lambda path: {"phrases": {"x": {"patern": "a"}}})
    with pytest.raises(RuleError, match="'x': unknown key 'patern'"):
        phrases()
    monkeypatch.undo()
    phrases.cache_clear()
    assert phrase("cry")
