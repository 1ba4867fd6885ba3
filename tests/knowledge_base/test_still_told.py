"""Faults and healthy runs that what keeps wrong places away must not silence: written by somebody who looked for what it over-reaches on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rerail.assistant.pipeline import diagnose_texts

FILE = Path(__file__).parents[1] / "data" / "still_told.jsonl"
CASES = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("one", CASES, ids=lambda one: one["id"])
def test_what_is_plainly_told_is_still_told(one: dict[str, Any]) -> None:
    found = diagnose_texts(one["files"]).diagnosis
    first = found.first_fault
    nodes, ranks = set(found.suspects.nodes), set(found.suspects.ranks)
    if first is not None:
        nodes |= {first.node} - {None}
        ranks |= {first.rank} - {None}
    told = {
        "outcome": found.outcome.value,
        "type": found.failure_type,
        "nodes": sorted(nodes),
        "ranks": sorted(ranks),
    }
    assert told == {key: one[key] for key in told}
