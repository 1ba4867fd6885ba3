"""Trainer states and CSV files of loggers give their steps at the lines where an editor finds them."""

from __future__ import annotations

import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from rerail.assistant.pipeline import diagnose_paths
from rerail.assistant.step_logs import read_step_log
from rerail.log_parsers.collect import ScanPlan, collect
from rerail.log_parsers.series_files.names import PATH, choose, meaning_of
from rerail.log_parsers.view import LogView

LOSS = Path("tests/data/loss")
LIGHTNING = """lr-Adam,epoch,step,train_loss_step,val_loss,train_loss_epoch
0.01,,3,,,
,0,3,4.5,,
,0,7,3.5,,
,0,7,,9.5,
,0,7,,,4.0
,1,11,nan,,
,1,15,nan,,
"""


def views(*paths: Path) -> list[LogView]:
    return collect(paths, ScanPlan(())).views


def test_every_example_of_a_name_means_what_its_entry_says() -> None:
    for meaning, entries in yaml.safe_load(PATH.read_text())["meanings"].items():
        for entry in entries:
            assert entry["source"]
            for name in entry["examples"]:
                found = meaning_of(name)
                assert found is not None and found.meaning == meaning, name
            for name in entry["must_not_match"]:
                assert not re.fullmatch(entry["name"], name.lower()), name


def test_the_preferred_name_counts_then_the_one_with_more_values() -> None:
    chosen = choose([("lm loss", 900), ("train/loss", 4), ("loss", 90), ("step_time_ms", 3)])
    assert chosen["loss"] == ("loss", 1.0) and chosen["step_time"] == ("step_time_ms", 1e-3)


@pytest.mark.parametrize(
    ("kind", "leaf"),
    [
        ("healthy", "no_failure"),
        ("fp16_nan", "loss_divergence"),
        ("lr_hot", "loss_divergence"),
        ("overfit", "no_failure"),
    ],
)
def test_real_trainer_states_are_judged(kind: str, leaf: str) -> None:
    found = diagnose_paths([LOSS / kind / "trainer_state.json"]).diagnosis
    assert found.failure_type == leaf
    if leaf != "no_failure":
        assert found.first_fault is not None
        line = (
            (LOSS / kind / "trainer_state.json").read_text().split("\n")[found.first_fault.line - 1]
        )
        assert line.strip() == found.first_fault.text.strip() and '"loss"' in line


def printed(entry: dict[str, Any]) -> dict[str, Any]:
    """The entry as the Trainer prints it: the loss first, without the step."""
    order = ("loss", "grad_norm", "learning_rate")
    rest = {k: v for k, v in entry.items() if k not in (*order, "step")}
    return {k: entry[k] for k in order if k in entry} | rest


def test_a_trainer_state_gives_the_verdict_of_the_lines_that_the_trainer_printed(
    tmp_path: Path,
) -> None:
    for kind in ("healthy", "fp16_nan", "lr_hot"):
        state = json.loads((LOSS / kind / "trainer_state.json").read_text())
        log = tmp_path / f"{kind}.log"
        log.write_text("".join(f"{printed(entry)}\n" for entry in state["log_history"]))
        ours, theirs = diagnose_paths([LOSS / kind / "trainer_state.json"]), diagnose_paths([log])
        # The lines that the trainer prints have no step, so that a healthy end cannot be told from them.
        if kind != "healthy":
            # Two infinite gradient norms, which fp16 skips, are what a rule reads in the printed lines.
            leaves = {ours.diagnosis.failure_type, theirs.diagnosis.failure_type}
            assert leaves <= {"loss_divergence", "loss_nan"} and (
                kind != "lr_hot" or len(leaves) == 1
            )
            assert ours.diagnosis.recovery.action == theirs.diagnosis.recovery.action
        else:
            continue
        mine, text = read_step_log(LOSS / kind / "trainer_state.json")[0], read_step_log(log)[0]
        assert mine.loss is not None and text.loss is not None
        assert mine.loss.tolist() == text.loss.tolist()


def test_of_the_checkpoints_of_a_run_the_last_says_it_all(tmp_path: Path) -> None:
    state = json.loads((LOSS / "healthy" / "trainer_state.json").read_text())
    for count in (10, 30, 50):
        folder = tmp_path / f"checkpoint-{count * 5}"
        folder.mkdir()
        short = {**state, "log_history": state["log_history"][:count]}
        (folder / "trainer_state.json").write_text(json.dumps(short, indent=2))
    (view,) = views(tmp_path)
    assert view.name == "checkpoint-250/trainer_state.json" and len(view.survey.steps) == 50


def test_a_cut_trainer_state_gives_what_stands_before_the_cut(tmp_path: Path) -> None:
    path = tmp_path / "trainer_state.json"
    path.write_bytes((LOSS / "healthy" / "trainer_state.json").read_bytes()[:2_000])
    (view,) = views(path)
    assert len(view.survey.steps) > 5
    assert (
        "line " in view.survey.problems[0].why and "cut or damaged" in view.survey.problems[0].why
    )


@pytest.mark.parametrize(
    "damage",
    ['{"log_history": [' + "[" * 100_000, '{"log_history": [{"step": 1e400, "loss": 1}]}', '{"log_history": [{"step": true, "loss": "x"}, 3, null]}', '{"best_metric": 1}', '{"log_history": [{"step": 5, "loss": ' + "9" * 5_000 + "}]}"],
)  # fmt: skip
def test_a_hostile_trainer_state_is_told_of_and_breaks_nothing(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "trainer_state.json"
    path.write_text(damage)
    (one,) = collect([path], ScanPlan(())).problems or [None]
    assert one is not None and one.subject.endswith("trainer_state.json")


def test_a_lightning_csv_is_read_row_by_row(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text(LIGHTNING)
    (view,) = views(tmp_path)
    found = [(row.line, row.step, row.loss, row.learning_rate) for row in view.survey.steps]
    assert found[:2] == [(3, 3, 4.5, 0.01), (4, 7, 3.5, 0.01)]
    assert [math.isnan(loss or 0) for _, _, loss, _ in found] == [False, False, True, True]
    assert view.text(4) == ",0,7,3.5,,"


def test_a_csv_whose_loss_becomes_nan_is_a_failure_at_its_line(tmp_path: Path) -> None:
    rows = [f"{step},{3 - step / 100 if step < 60 else 'nan'},0.001" for step in range(1, 100)]
    (tmp_path / "metrics.csv").write_text(
        "step,loss/train/total,lr-Adam/group0\n" + "\n".join(rows) + "\n"
    )
    found = diagnose_paths([tmp_path]).diagnosis
    assert (found.failure_type, found.status.value) == ("loss_nan", "established")
    assert found.first_fault is not None and found.first_fault.line == 61


def test_lines_without_a_step_are_told_and_the_rest_is_read(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text(
        "step,train_loss_step\n1,2.0\nzwei,1.9\n3,1.8\nstep,train_loss_step\n4,1.7\n5,1.6"
    )
    (view,) = views(path)
    assert [row.step for row in view.survey.steps] == [1, 3, 4, 5]
    assert "line 3 column step: 'zwei'" in view.survey.problems[0].why


def test_a_csv_without_steps_stays_a_log(tmp_path: Path) -> None:
    path = tmp_path / "hosts.csv"
    path.write_text("host,loss\ngn-1,0.5\n")
    (view,) = views(path)
    assert view.survey.steps == [] and view.text(2) == "gn-1,0.5"


def test_the_console_log_of_an_offline_wandb_run_is_read(tmp_path: Path) -> None:
    files = tmp_path / "wandb" / "offline-run-20261122_230955-71pjetdx" / "files"
    files.mkdir(parents=True)
    (files / "output.log").write_text(
        "".join(f"step {s} loss {2 / s:.5f} lr 0.001\n" for s in range(1, 40))
    )
    (files.parent / "run-71pjetdx.wandb").write_bytes(b":W&B\x00\x01\x02" * 50)
    collection = collect([tmp_path], ScanPlan(()))
    assert [len(view.survey.steps) for view in collection.views] == [39]
    assert collection.binaries == []


def test_a_log_comes_before_the_series_of_the_same_job(tmp_path: Path) -> None:
    shutil.copy(LOSS / "fp16_nan" / "trainer_state.json", tmp_path / "a_trainer_state.json")
    shutil.copy(LOSS / "fp16_nan" / "trainer_state.json", tmp_path / "trainer_state.json")
    state: dict[str, Any] = json.loads((LOSS / "fp16_nan" / "trainer_state.json").read_text())
    (tmp_path / "z.log").write_text("\n".join(str(entry) for entry in state["log_history"]) + "\n")
    assert views(tmp_path)[0].name == "z.log"
