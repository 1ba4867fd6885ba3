"""Places that are not to be named: logs in which a host or rank beside the fault looks like its place.

Written by people who looked for what the rules over-reach on (w, x; y, z, r, s, u, b: what others found in mendings the same day; p: how launchers, loggers and collectors tell a place); those that are still wrong are marked `open`.
Texts of several files are read as files. `nodes` and `ranks` are all that may be named; none need be, but for
`must_nodes` and `must_ranks`. `outcome` and `status` say what may not be claimed, `types` what alone may, `not_in_headline` what the headline may not say.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rerail.assistant.pipeline import diagnose_paths
from rerail.domain.diagnosis import Outcome, Status

FILE = Path(__file__).parents[1] / "data" / "wrong_places.jsonl"


def cases() -> list[Any]:
    read = (json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines())
    still_wrong = pytest.mark.xfail(reason="still names a wrong place", strict=True)
    return [
        pytest.param(one, id=one["id"], marks=[still_wrong] if one.get("open") else [])
        for one in read
    ]


@pytest.mark.parametrize("one", cases())
def test_no_wrong_place_is_named(one: dict[str, Any], tmp_path: Path) -> None:
    for name, text in one["files"].items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    paths = [tmp_path] if len(one["files"]) > 1 else list(tmp_path.iterdir())
    found = diagnose_paths(paths).diagnosis
    if "outcome" in one:
        refused = Outcome.FAILURE if one["outcome"] == "not failure" else Outcome.NO_FAILURE
        assert found.outcome is not refused
    first = found.first_fault
    nodes, ranks = set(found.suspects.nodes), set(found.suspects.ranks)
    if first is not None:
        nodes |= {first.node} - {None}
        ranks |= {first.rank} - {None}
    assert "nodes" not in one or nodes <= set(one["nodes"])
    assert "ranks" not in one or ranks <= set(one["ranks"])
    assert nodes >= set(one.get("must_nodes", ()))
    assert ranks >= set(one.get("must_ranks", ()))
    assert "types" not in one or found.failure_type in one["types"]
    assert not any(words in found.headline for words in one.get("not_in_headline", ()))
    assert "status" not in one or found.status is not Status.ESTABLISHED
