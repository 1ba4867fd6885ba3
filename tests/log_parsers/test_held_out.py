"""What is measured on held-out data is never training's loss, in a series or in a single line's rule."""

from __future__ import annotations

from pathlib import Path

import pytest

from rerail.assistant.pipeline import diagnose_paths
from rerail.assistant.step_logs import read_step_log
from rerail.log_parsers.metrics import StepReader
from rerail.log_parsers.piece import Piece
from rerail.log_parsers.step_numbers import StepRow


def rows(text: str) -> list[StepRow]:
    reader = StepReader()
    reader.feed(Piece(text.encode()), 1)
    return list(reader.finish())


HELD_OUT = [
    "validation step {i} loss {x}",
    "[eval] iteration {i}: loss {x}",
    "(test) Iter {i} - Loss {x}",
    "step {i} val: loss {x}",
    "step {i} | validation loss {x}",
    "Evaluation after step {i}: loss={x}",
    '{{"split": "val", "step": {i}, "loss": {x}}}',
    "mode=eval step={i} loss={x}",
    "held-out batch {i} loss {x}",
    "evaluator: batch {i} of 60, loss {x}",
    "[tester] step {i} loss {x}",
    "step {i} train loss 2.1 eval loss {x}",
]
TRAINING = [
    "step {i} loss {x} val_loss {x}",
    "step {i} train loss {x} val loss {x}",
    "test-node-3: step {i} loss {x}",
    "[dev-gpu03] iteration {i}/900 loss {x}",
    "exp_eval_01 | step {i} | loss {x}",
    "/data/test/run1/step-{i}: loss {x}",
    '{{"name": "test", "step": {i}, "loss": {x}}}',
]


def written(form: str, path: Path) -> Path:
    lines = (form.format(i=i, x="nan" if i > 40 else f"{3 - i / 50:.4f}") for i in range(1, 61))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("form", HELD_OUT)
def test_a_loss_of_held_out_data_that_is_no_number_is_no_failure(form: str, tmp_path: Path) -> None:
    found = diagnose_paths([written(form, tmp_path / "run.log")]).diagnosis
    assert found.failure_type in (None, "no_failure")


@pytest.mark.parametrize("form", TRAINING)
def test_names_that_hold_such_words_and_losses_beside_such_are_training(
    form: str, tmp_path: Path
) -> None:
    found = diagnose_paths([written(form, tmp_path / "run.log")]).diagnosis
    assert found.failure_type == "loss_nan" and found.first_fault is not None
    assert found.first_fault.line == 41


def test_the_loss_of_training_is_read_beside_that_of_held_out_data() -> None:
    (row,) = rows("step 5 val loss 3.5 train loss 2.5\n")
    assert (row.form, row.loss) == ("step", 2.5)


def test_lines_of_an_unknown_form_are_told_apart_by_their_label(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    text = "".join(
        f"[fit] update#{i} crit {3 - i / 900:.4f} sec 0.6{i % 7}\n"
        + (f"[valid] update#{i} crit nan\n" if not i % 5 else "")
        for i in range(1, 200)
    )
    path.write_text(text)
    (series,) = read_step_log(path)
    assert len(series) == 199 and series.value_name == "crit"
    assert diagnose_paths([path]).diagnosis.failure_type in (None, "no_failure")
