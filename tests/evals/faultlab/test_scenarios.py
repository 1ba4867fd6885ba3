import importlib
import json
import os
import signal
import subprocess
import time
import uuid
from pathlib import Path

import pytest
import yaml

from rerail.domain.diagnosis import Action, Outcome
from rerail.evals.faultlab import machine, scenarios
from rerail.evals.faultlab.faults import FAMILIES, Hooks, load
from rerail.evals.faultlab.prepare import PREPARATIONS, prepare
from rerail.evals.faultlab.runner import _command, why_not
from rerail.evals.faultlab.scenarios import Scenario, Truth, all_scenarios

ROOT = Path(__file__).parents[3]
SCENARIOS = list(all_scenarios().values())
DATA = ROOT / "tests" / "data"


def leaves() -> set[str]:
    taxonomy = yaml.safe_load((ROOT / "knowledge_base" / "taxonomy.yaml").read_text())
    return {leaf["id"] for category in taxonomy["categories"] for leaf in category["leaves"]}


def check_truth(truth: Truth) -> None:
    known = leaves()
    assert {truth.outcome, *truth.accept_outcomes} <= {str(outcome) for outcome in Outcome}
    assert {truth.action, *truth.accept_actions} <= {str(action) for action in Action}
    assert set(truth.accept_leaves) <= known
    assert truth.leaf is None or truth.leaf in known
    assert (truth.leaf is None) == (truth.outcome == "no_failure")


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
def test_truth_is_made_of_known_words(scenario: Scenario) -> None:
    check_truth(scenario.truth)
    assert scenario.truth.rank is None or 0 <= scenario.truth.rank < 4


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
def test_names_resolve(scenario: Scenario) -> None:
    assert scenario.prepare in PREPARATIONS
    if scenario.hooks:
        modules = [importlib.import_module(f"rerail.evals.faultlab.faults_{f}") for f in FAMILIES]
        hooks = next(m.HOOKS[scenario.hooks] for m in modules if scenario.hooks in m.HOOKS)
        assert issubclass(hooks, Hooks)
        # A rank that misbehaves alone is the culprit of the truth, where there is one.
        if scenario.truth.rank is not None and scenario.truth.outcome == "failure":
            assert hooks.rank == scenario.truth.rank


def test_there_are_enough_ways_to_fail() -> None:
    failing = [one for one in SCENARIOS if one.truth.outcome == "failure" and not one.cannot]
    assert len(failing) >= 36
    assert len({one.truth.leaf for one in failing}) >= 20
    assert any(one.truth.outcome == "no_failure" for one in SCENARIOS)
    assert sum(one.quick for one in SCENARIOS) == 2


def test_two_scenarios_of_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from rerail.evals.faultlab import scenarios_host

    monkeypatch.setattr(scenarios_host, "SCENARIOS", scenarios_host.SCENARIOS * 2)
    with pytest.raises(ValueError, match="same name"):
        scenarios.all_scenarios()


def test_unknown_hooks_are_refused() -> None:
    with pytest.raises(LookupError):
        load("no_such_hooks")


def test_a_scenario_that_cannot_run_says_why() -> None:
    assert "whole machine" in why_not(all_scenarios()["host_oom_kill"])


def test_a_need_without_root_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.os, "geteuid", lambda: 1000)
    assert machine.missing("mount_namespace") == "mount_namespace needs root"


def test_left_over_processes_are_found_by_token_and_ended() -> None:
    token = f"job-test-{uuid.uuid4().hex}"
    # A stopped process does not answer SIGTERM: the lab must end it all the same.
    process = subprocess.Popen(["sleep", "60"], env={**os.environ, "JOB_TOKEN": token})
    os.kill(process.pid, signal.SIGSTOP)
    # The kernel shows the environment a moment after exec.
    deadline = time.monotonic() + 5
    while not machine.processes_of(token) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert machine.end_processes(token) == 1
    assert process.wait(5) == -signal.SIGKILL


def test_every_preparation_that_needs_no_torch_makes_a_run_folder(tmp_path: Path) -> None:
    for name in ("", "zero_weights", "missing_field", "truncated_line", "short_shard"):
        prepare(name, tmp_path / (name or "plain"))
    plain = tmp_path / "plain" / "data"
    assert len(list(plain.glob("shard_*.jsonl"))) == 4
    first = json.loads((plain / "shard_000.jsonl").read_text().splitlines()[0])
    assert len(first["tokens"]) == 33
    shards = tmp_path / "zero_weights" / "data" / "shard_001.jsonl"
    weights = [json.loads(line)["weight"] for line in shards.read_text().splitlines()]
    assert weights.count(0.0) == 8


def test_the_command_does_not_tell_the_scenario(tmp_path: Path) -> None:
    for scenario in SCENARIOS:
        # The story of a command line option is the job's own; the scenario's name is ours.
        command = _command(scenario, tmp_path, 29500)
        assert "{" not in " ".join(command)
        if len(scenario.name) > 10:
            assert scenario.name not in " ".join(command)


@pytest.mark.parametrize("group", ["faultlab", "gpulab", "slurm"])
def test_recorded_truth_agrees_with_its_folders(group: str) -> None:
    stored = json.loads((DATA / group / "truth.json").read_text())
    assert stored["schema_version"] == 1
    folders = {path.name for path in (DATA / group).glob("[!.]*/")}
    assert set(stored["runs"]) == folders
    for entry in stored["runs"].values():
        fields = {k: tuple(v) if isinstance(v, list) else v for k, v in entry["truth"].items()}
        check_truth(Truth(**fields))


@pytest.mark.parametrize("group", ["faultlab", "gpulab"])
def test_recorded_truth_is_the_truth_of_the_table(group: str) -> None:
    stored = json.loads((DATA / group / "truth.json").read_text())["runs"]
    for name, entry in stored.items():
        fields = {k: tuple(v) if isinstance(v, list) else v for k, v in entry["truth"].items()}
        scenario = all_scenarios()[name]
        assert Truth(**fields) == scenario.truth
        assert (entry["family"], entry["story"]) == (scenario.family, scenario.story)
        assert entry["world"] == scenario.world
    recorded = {
        one.name
        for one in SCENARIOS
        if not one.cannot and ("cuda" in one.needs) is (group == "gpulab")
    }
    assert set(stored) == recorded


@pytest.mark.parametrize("group", ["faultlab", "gpulab"])
def test_recorded_runs_hold_neither_truth_nor_machine_paths(group: str) -> None:
    for path in (DATA / group).rglob("*"):
        if path.is_file() and path.name != "truth.json":
            text = path.read_text(errors="replace").replace("/lab/run/tmp/", "")
            assert "/tmp/" not in text, path
            assert "/root/" not in text, path
            assert ".venv" not in text, path
            assert "JOB_HOOKS" not in text, path
