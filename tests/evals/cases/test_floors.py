"""What was once right in the kept cases stays right: a rule for a new report must not cost an older one."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rerail.evals.cases.case_file import load_cases
from rerail.evals.cases.kept import KEPT
from rerail.evals.cases.run import run_cases
from rerail.evals.cases.score import CaseScore

SNAPSHOT = Path(__file__).parents[2] / "data" / "kept_cases.json"
"""By file the cases in which something is wrong, and what; UPDATE_SNAPSHOTS=1 writes it anew."""


def wrong(one: CaseScore) -> list[str]:
    """Return what an expert would not accept, a node named in place of another one apart."""
    found = one.diagnosis
    answers = {"type": one.type, "line": one.line, "rank": one.rank, "node": one.node}
    missed = [name for name, right in answers.items() if right is False]
    named = {*found.suspects.nodes, *([found.first_fault.node] if found.first_fault else [])}
    if "node" in missed and named - {None}:
        missed.append("another node")
    if one.false_alarm:
        missed.append("false alarm")
    if one.established_wrong:
        missed.append("established")
    return missed


@pytest.mark.parametrize("file", KEPT, ids=lambda path: path.stem)
def test_no_kept_case_becomes_worse(file: Path) -> None:
    scores = run_cases(load_cases(file), digests=False)
    now = {one.case.id: missed for one in scores if (missed := wrong(one))}
    known = json.loads(SNAPSHOT.read_text()) if SNAPSHOT.is_file() else {}
    if os.environ.get("UPDATE_SNAPSHOTS"):
        text = json.dumps({**known, file.stem: now}, indent=1, sort_keys=True)
        SNAPSHOT.write_text(text + "\n")
        return
    before = known[file.stem]
    worse = {name: m for name, m in now.items() if set(m) - set(before.get(name, ()))}
    assert worse == {}
    # What was mended is to be kept: then the snapshot is written anew.
    assert {name for name in before if name not in now} == set()
