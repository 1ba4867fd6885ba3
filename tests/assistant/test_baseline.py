"""`rerail diagnose --baseline GOOD`: what a log alone cannot show, on real runs; else that it cannot be known."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rerail.assistant.cli.main import app
from rerail.settings import load_settings

LOSS = Path(__file__).parents[1] / "data" / "loss"
GOOD = LOSS / "healthy" / "trainer_state.json"


@pytest.fixture(autouse=True)
def own_store(tmp_path, monkeypatch):
    monkeypatch.setenv("RERAIL_DATA_DIR", str(tmp_path / "data"))
    load_settings.cache_clear()
    yield
    load_settings.cache_clear()


def diagnose(*arguments):
    return CliRunner().invoke(app, ["diagnose", *map(str, arguments)])


def found(*arguments):
    done = diagnose("--json", *arguments)
    return done.exit_code, json.loads(done.stdout)


def seeds():
    return sorted(GOOD.parent.glob("seed*/**/trainer_state.json"))


def test_wrong_labels_and_a_learning_rate_of_zero_show_beside_good_runs_only():
    good = ("--baseline", GOOD, "--baseline", seeds()[0])
    for name, leaf, what in (
        ("bad_labels", "target_not_reached", "loss"),
        ("lr_zero", "config_error", "learning rate"),
    ):
        run = LOSS / name / "trainer_state.json"
        assert found(run)[1]["outcome"] == "no_failure"
        code, verdict = found(*good, run)
        assert (code, verdict["failure_type"], verdict["status"]) == (0, leaf, "supported")
        assert verdict["headline"].startswith(f"The {what} is not that of a good run")
        assert verdict["recovery"]["action"] == "fix_code_or_config_do_not_restart"
        assert verdict["first_fault"]["line"] > 1
        assert next(one["what"] for one in verdict["baseline"] if one["worse"]) in (what, "loss")


def test_another_seed_of_the_good_run_differs_in_nothing():
    first, second = seeds()[:2]
    for good in (("--baseline", GOOD), ("--baseline", GOOD, "--baseline", second)):
        code, verdict = found(*good, first)
        assert (code, verdict["outcome"]) == (3, "no_failure")
        assert verdict["baseline"]
        assert not any(one["worse"] for one in verdict["baseline"])


def steps(seconds, count=120, start=1):
    return "".join(
        f"step {i} loss {2 - i / 100:.3f} step_time {seconds * (1 + 0.01 * (i % 3)):.4f}\n"
        for i in range(start, start + count)
    )


def test_a_run_that_is_slow_from_its_first_step_is_seen(tmp_path):
    (tmp_path / "good.log").write_text(steps(0.5))
    (tmp_path / "run.log").write_text(steps(0.8) + "Training completed.\n")
    assert found(tmp_path / "run.log")[1]["outcome"] == "no_failure"
    code, verdict = found("--baseline", tmp_path / "good.log", tmp_path / "run.log")
    assert (code, verdict["failure_type"]) == (0, "fail_slow_unexplained")
    assert "1.60 times slower" in verdict["summary"]
    shown = diagnose("--baseline", tmp_path / "good.log", tmp_path / "run.log").stdout
    assert "BASELINE" in shown


def test_a_failure_of_its_own_stays_the_verdict(tmp_path):
    (tmp_path / "good.log").write_text(steps(0.5))
    fault = "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    (tmp_path / "run.log").write_text(steps(0.8) + fault)
    _, verdict = found("--baseline", tmp_path / "good.log", tmp_path / "run.log")
    assert verdict["failure_type"] == "cuda_oom"
    assert any(one["worse"] for one in verdict["baseline"])


def test_what_cannot_be_known_is_said_and_a_bad_good_run_is_refused(tmp_path):
    (tmp_path / "run.log").write_text("starting\nTraining completed.\n")
    _, verdict = found("--baseline", GOOD, tmp_path / "run.log")
    (only,) = verdict["baseline"]
    assert only["status"] == "unknown" and "cannot be known" in only["says"]
    (tmp_path / "few.log").write_text(steps(0.5, count=8))
    _, verdict = found("--baseline", GOOD, tmp_path / "few.log")
    assert {one["status"] for one in verdict["baseline"]} == {"unknown"}
    refused = diagnose("--baseline", LOSS / "fp16_nan" / "trainer_state.json", tmp_path / "run.log")
    assert "cannot serve as a good run" in str(refused.exception)
    assert "does not exist" in str(
        diagnose("--baseline", "nowhere", tmp_path / "run.log").exception
    )


def as_text(state, path, *, bars):
    """What the Trainer prints of the same run: no step in its lines, and a bar above them on a terminal."""
    order = ("loss", "grad_norm", "learning_rate", "epoch")
    rows = [row for row in json.loads(state.read_text())["log_history"] if "loss" in row]
    bar = "\r {step:3d}%|#   | {step}/300 [00:01<00:30,  5.1it/s]\n" if bars else ""
    lines = (
        bar.format(**row) + repr({k: row[k] for k in order if k in row}) + "\n" for row in rows
    )
    path.write_text("".join(lines))
    return path


@pytest.mark.parametrize("bars", [False, True])
def test_lines_that_do_not_say_their_step_are_not_held_against_steps(bars, tmp_path):
    run = as_text(seeds()[0], tmp_path / "output.log", bars=bars)
    _, verdict = found("--baseline", GOOD, run)
    assert verdict["outcome"] == "no_failure"
    assert {one["status"] for one in verdict["baseline"]} == {"unknown"}
    assert "does not say its steps" in verdict["baseline"][0]["says"]
    good = as_text(GOOD, tmp_path / "good.log", bars=bars)
    zero = as_text(LOSS / "lr_zero" / "trainer_state.json", tmp_path / "zero.log", bars=bars)
    assert found("--baseline", good, zero)[1]["failure_type"] == "config_error"
    assert found("--baseline", good, run)[1]["outcome"] == "no_failure"
