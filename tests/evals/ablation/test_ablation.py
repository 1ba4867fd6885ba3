"""Switching a part off changes what depends on it, and leaves nothing behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rerail.evals.ablation.command import Bench, ablation_command
from rerail.evals.ablation.switches import switches
from rerail.evals.cases.case_file import load_cases
from rerail.evals.cases.kept import KEPT

KINDS = {
    "rank source": "slot",
    "node source": "label",
    "step": "initiating",
    "edge": "training went on",
    "statement": "elastic-table-row",
    "label": None,
    "heading": None,
    "wording": "nccl-watchdog",
    "question": "absent",
    "rules": "hardware.yaml",
}


def test_every_kind_of_part_can_be_switched_off() -> None:
    found = switches()
    assert {switch.kind for switch in found} == set(KINDS)
    assert len({str(switch) for switch in found}) == len(found)
    for kind, name in KINDS.items():
        assert name is None or name in {switch.name for switch in found if switch.kind == kind}


def test_what_a_part_is_good_for_is_noticed_and_comes_back() -> None:
    cases = [case for file in KEPT for case in load_cases(file) if case.id.startswith("c00")]
    bench = Bench(cases)
    lost, _ = bench.noticed(next(s for s in switches() if str(s) == "rules hardware.yaml"))
    assert len(lost) >= 3
    assert all("type" in questions or "line" in questions for questions in lost.values())
    again = Bench(cases)
    assert again.base == bench.base
    nothing = next(s for s in switches() if str(s) == "wording hccl-notify")
    assert bench.noticed(nothing) == ({}, {})


def test_the_command_prints_who_notices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "one.jsonl"
    file.write_text("\n".join(KEPT[0].read_text(encoding="utf-8").splitlines()[:3]) + "\n")
    assert ablation_command([file], only="step initiating", tests=False, json_output=True) == 0
    [row] = json.loads(capsys.readouterr().out)
    assert row["lost"]
    assert (row["kind"], row["name"]) == ("step", "initiating")
