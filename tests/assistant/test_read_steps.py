from __future__ import annotations

from pathlib import Path

import pytest

from rerail.assistant.read_steps import read_steps
from rerail.assistant.step_logs import read_step_log


@pytest.mark.parametrize(
    ("column", "slow", "fast"),
    [
        ("train/step_time_s", 1.6, 0.8),
        ("batch_time", 1.6, 0.8),
        ("sec_per_step", 1.6, 0.8),
        ("time/iter", 1.6, 0.8),
        ("ms_per_iter", 1600, 800),
        ("train/tokens_per_sec", 1000, 2000),
    ],
)
def test_a_table_whose_column_of_times_has_another_name_is_timed(
    column: str, slow: float, fast: float, tmp_path: Path
) -> None:
    path = tmp_path / "metrics.csv"
    rows = [f"0,{n},{7 - n / 100:.3f},{slow if n > 20 else fast}" for n in range(1, 41)]
    path.write_text("\n".join([f"epoch,step,train_loss,{column}", *rows]) + "\n")
    (series,) = read_steps(path, read_step_log)
    assert series.step_time_s[-1] / series.step_time_s[0] == pytest.approx(2.0)
    assert series.loss is not None and series.loss[-1] == pytest.approx(6.6)


@pytest.mark.parametrize("column", ["time/train", "time_step", "val_step_time", "queue_depth"])
def test_other_columns_are_no_times_of_steps(column: str, tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    rows = [f"{n},{7 - n / 100:.3f},{n * 0.8}" for n in range(1, 41)]
    path.write_text("\n".join([f"step,train_loss,{column}", *rows]) + "\n")
    (series,) = read_steps(path, read_step_log)
    assert not (series.step_time_s > 0).any()
