import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from rerail.errors import EvidenceError, UsageError
from rerail.evals.faultlab import command, report
from rerail.evals.faultlab import score as scoring
from rerail.evals.faultlab.record import record
from rerail.evals.faultlab.runner import Run
from rerail.evals.faultlab.scenarios import Truth, all_scenarios
from rerail.evals.faultlab.score import Place, Verdict, read_verdict, score, torchrun_root_cause

TRUTH = Truth(
    "failure", "tensor_mismatch", 2, "fix_config_then_restart",
    accept_leaves=("python_exception",), accept_actions=("page_human",),
)  # fmt: skip
RIGHT = Verdict(
    outcome="failure", status="established", leaf="tensor_mismatch", ranks=(2,), first_rank=2,
    action="fix_config_then_restart",
)  # fmt: skip
PLACE = Place(4, ("n1", "n2"))
HEALTHY = Truth("no_failure", None, None, "none", accept_actions=("no_action_results_complete",))
REPORT = """\
Failures:
[1]:
  time      : 2026-11-21_01:30:02
  host      : localhost
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 9723)  (SIGTERM)
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-21_01:30:01
  host      : localhost
  rank      : {} (local_rank: 2)
  exitcode  : 1 (pid: 9725)
"""


def scored(truth: Truth, verdict: Verdict, baseline: int | None = None) -> scoring.Score:
    return score("run", "family", truth, verdict, baseline, PLACE)


def test_a_right_verdict_is_right() -> None:
    one = scored(TRUTH, RIGHT, baseline=2)
    assert one.right
    assert one.leaf_exact
    assert one.baseline_ok is True


def test_an_accepted_leaf_counts_but_is_not_exact() -> None:
    one = scored(TRUTH, replace(RIGHT, leaf="python_exception", action="page_human"))
    assert one.right
    assert not one.leaf_exact


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"outcome": "no_failure"}, "outcome_ok"),
        ({"outcome": "inconclusive"}, "outcome_ok"),
        ({"leaf": "loss_nan"}, "leaf_ok"),
        ({"leaf": None}, "leaf_ok"),
        ({"ranks": (1,)}, "rank_ok"),
        ({"ranks": (1, 2)}, "rank_ok"),
        ({"ranks": (), "first_rank": 1}, "rank_ok"),
        ({"ranks": (), "first_rank": None}, "rank_ok"),
        ({"action": "requeue"}, "action_ok"),
    ],
)
def test_each_wrong_part_is_seen(change: dict[str, object], field: str) -> None:
    one = scored(TRUTH, replace(RIGHT, **change))
    assert getattr(one, field) is False
    assert not one.right


def test_the_first_line_accuses_when_no_suspect_is_named() -> None:
    assert scored(TRUTH, replace(RIGHT, ranks=(), first_rank=2)).rank_ok


@pytest.mark.parametrize(("ranks", "right"), [((), True), ((0, 1, 2, 3), True), ((1,), False)])
def test_nobody_may_be_accused_where_there_is_no_culprit(
    ranks: tuple[int, ...], right: bool
) -> None:
    one = scored(replace(TRUTH, rank=None), replace(RIGHT, ranks=ranks), baseline=0)
    assert one.rank_ok is right
    assert one.baseline_ok is None


def test_torchrun_is_not_judged_where_it_said_nothing() -> None:
    assert scored(TRUTH, RIGHT, baseline=None).baseline_ok is None
    assert scored(TRUTH, RIGHT, baseline=0).baseline_ok is False


def test_a_wrong_node_is_a_wrong_culprit() -> None:
    truth = replace(TRUTH, node="n2")
    assert scored(truth, replace(RIGHT, nodes=("n2",))).right
    assert scored(truth, RIGHT).right
    one = scored(truth, replace(RIGHT, nodes=("n1",)))
    assert (one.rank_ok, one.node_ok, one.right) == (True, False, False)


def test_an_invented_node_is_wrong_even_where_no_node_is_asked_for() -> None:
    assert scored(TRUTH, replace(RIGHT, nodes=("n1",))).right
    assert not scored(TRUTH, replace(RIGHT, nodes=("INFO",))).right


def test_no_failure_needs_no_leaf() -> None:
    verdict = Verdict(outcome="no_failure", action="none")
    assert scored(HEALTHY, verdict).right
    tolerant = replace(TRUTH, rank=None, accept_outcomes=("no_failure",), accept_actions=("none",))
    assert scored(tolerant, verdict).right


def test_no_verdict_is_wrong_everywhere() -> None:
    one = scored(HEALTHY, Verdict(error="exit 70"))
    assert [one.outcome_ok, one.leaf_ok, one.rank_ok, one.action_ok] == [False] * 4


def test_torchrun_report_is_read() -> None:
    assert torchrun_root_cause("nothing failed") is None
    assert torchrun_root_cause(REPORT.format(2)) == 2
    # After restarts the last report is torchrun's word.
    assert torchrun_root_cause(REPORT.format(2) + REPORT.format(3)) == 3


def test_the_contract_json_is_read() -> None:
    answer = {
        "outcome": "failure",
        "status": "supported",
        "failure_type": "loss_nan",
        "first_fault": {"file": "a.log", "line": 7, "text": "loss nan", "rank": 1},
        "suspects": {"ranks": [1], "nodes": ["n2"], "gpus": []},
        "recovery": {"action": "roll_back_checkpoint_and_skip_data"},
        "elapsed_s": 0.5,
    }
    verdict = read_verdict(answer)
    assert read_verdict({**answer, "failure_type": "no_failure"}).leaf is None
    assert verdict.ranks == (1,)
    assert verdict.line == "a.log:7 loss nan"
    assert read_verdict({**answer, "first_fault": None}).first_rank is None


def test_a_program_that_breaks_is_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "rerail"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'not json'\necho 'it broke' >&2\nexit 70\n")
    program.chmod(0o755)
    (tmp_path / "secret_name").mkdir()
    monkeypatch.setattr(scoring.sys, "executable", str(program.with_name("python")))
    assert "it broke" in scoring.diagnose(tmp_path / "secret_name").error
    # What the program sees has a neutral name and none of the scenario's.
    program.write_text("#!/bin/sh\npwd >&2\necho $@ >&2\nexit 70\n")
    assert scoring.diagnose(tmp_path / "secret_name").error.endswith(
        "diagnose --json --no-model --no-store logs"
    )


def test_the_summary_counts() -> None:
    scores = [
        scored(TRUTH, RIGHT, baseline=0),
        scored(TRUTH, replace(RIGHT, ranks=(3,)), baseline=2),
        scored(HEALTHY, Verdict(outcome="no_failure", action="none")),
    ]
    total = scoring.summary(scores)
    assert (total["runs"], total["right"], total["single_culprit"]) == (3, 2, 2)
    assert (total["rank"], total["baseline_rank"], total["baseline_runs"]) == (1, 1, 2)
    assert total["nobody_accused_wrongly"] == 1


def test_the_report_shows_what_was_said_and_what_was_wanted() -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    scores = [scored(TRUTH, replace(RIGHT, ranks=(3,)), baseline=0)]
    report.show(scores, {"host_oom": "needs a host of its own"}, console)
    text = console.export_text()
    assert "3, not 2" in text
    assert "skipped host_oom: needs a host of its own" in text
    assert "first observed failure 0 of 1" in text
    assert json.loads(report.as_json(scores, {}))["runs"][0]["right"] is False


def recorded_set(folder: Path) -> Path:
    from dataclasses import asdict

    (folder / "one").mkdir(parents=True)
    (folder / "one" / "torchrun.log").write_text(REPORT.format(2))
    entry = {"family": "python", "truth": asdict(TRUTH), "world": 4, "hosts": ["vm"]}
    (folder / "truth.json").write_text(json.dumps({"schema_version": 1, "runs": {"one": entry}}))
    return folder


def test_the_command_scores_a_recorded_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = recorded_set(tmp_path)
    monkeypatch.setattr(scoring, "diagnose", lambda logs: RIGHT)
    assert command.faultlab_command([], None, folder, True) == 0
    assert json.loads(capsys.readouterr().out)["summary"]["baseline_rank"] == 1
    monkeypatch.setattr(scoring, "diagnose", lambda logs: Verdict(error="exit 70"))
    assert command.faultlab_command(["one"], None, folder, False) == 1
    with pytest.raises(UsageError, match="two"):
        command.faultlab_command(["two"], None, folder, False)
    with pytest.raises(EvidenceError):
        command.faultlab_command([], None, tmp_path / "one", False)


def test_the_command_runs_and_skips(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(scenario: object, out: Path) -> Run:
        name = scenario.name  # type: ignore[attr-defined]
        if name == "sigkill":
            return Run(name, None, False, 0.0, 0, {}, skipped="torch is not installed")
        (out / name / "logs").mkdir(parents=True)
        return Run(name, 1, False, 5.0, 0, {})

    monkeypatch.setattr(command, "run_scenario", run)
    monkeypatch.setattr(scoring, "diagnose", lambda logs: RIGHT)
    assert command.faultlab_command(["sigkill", "exception_one_rank"], tmp_path, None, True) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["skipped"] == {"sigkill": "torch is not installed"}
    assert [one["name"] for one in answer["runs"]] == ["exception_one_rank"]


def test_recording_replaces_paths_and_nothing_else(tmp_path: Path) -> None:
    name = next(iter(all_scenarios()))
    logs = tmp_path / "runs" / name / "logs"
    logs.mkdir(parents=True)
    (logs / "torchrun.log").write_text("File '/x/runs/run-ab12cd34/ckpt/a.pt', port 12345\n")
    meta = {"exit_code": 0, "timed_out": False, "wall_s": 1.0, "versions": {}, "hosts": ["vm"]}
    (logs.parent / "meta.json").write_text(json.dumps(meta))
    (tmp_path / "set").mkdir()
    record(tmp_path / "runs", tmp_path / "set")
    text = (tmp_path / "set" / name / "torchrun.log").read_text()
    assert text == "File '/lab/run/ckpt/a.pt', port 12345\n"
    assert scoring.read_truths(tmp_path / "set" / "truth.json")[name][1] == HEALTHY
