"""What changed between profiles of real loops on an H100, and which of the changes is told first."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rerail.assistant.cli.localize import localize_command
from rerail.assistant.cli.profiles import change_command
from rerail.tools.profiles.collect import read_job
from rerail.tools.profiles.tables import change_table

TRACES = Path(__file__).parents[2] / "data" / "gpu_traces"
COLLECTED = TRACES / "collector"


def job(folder: Path, *names: str) -> Path:
    folder.mkdir()
    for name in names:
        shutil.copy(TRACES / f"{name}.json.gz", folder)
    return folder


def told(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line.strip().rsplit(":", 1)[0] for line in capsys.readouterr().out.splitlines()[1:]]


def test_a_loader_that_waits_is_told_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = job(tmp_path / "plain", "plain"), job(tmp_path / "slow", "slow_loader")
    assert change_command(before, [after], False) == 0
    assert told(capsys)[0] == "data_loading"


def test_a_neighbour_on_the_gpu_makes_its_kernels_longer(tmp_path: Path) -> None:
    frame = change_table(job(tmp_path / "a", "plain"), job(tmp_path / "b", "neighbour"))
    kernels = frame[frame["function"].str.startswith("cutlass::Kernel2")]
    assert len(kernels) == 2
    assert (kernels["ratio"] > 1.8).all()


@pytest.mark.parametrize(
    ("mode", "first"),
    [("loader", "collect.py: load_batch"), ("sync", "cutlass::Kernel2")],
)
def test_summaries_of_the_collector_say_what_changed(
    mode: str, first: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert change_command(COLLECTED / "base", [COLLECTED / mode], False) == 0
    lines = told(capsys)
    assert lines[0].startswith(first)
    # Norms of gradients that are read one by one wait for the GPU each time.
    waits = {"aten::linalg_vector_norm", "cudaStreamSynchronize", "functional.py: norm"}
    assert waits <= set(lines) if mode == "sync" else not waits & set(lines)


def test_one_trace_that_tells_no_rank_is_of_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert read_job([TRACES / "plain.json.gz"]).ranks.tolist() == [0]
    assert localize_command([TRACES / "plain.json.gz"], json_output=True) == 10
    assert "nothing to compare it with" in json.dumps(json.loads(capsys.readouterr().out))
    two = job(tmp_path / "two", "plain", "neighbour")
    with pytest.raises(Exception, match="does not say which rank"):
        read_job(sorted(two.iterdir()))
