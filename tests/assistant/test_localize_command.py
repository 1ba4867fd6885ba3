"""`rerail localize` as its user and its scripts meet it."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rerail.assistant.cli.localize import localize_command
from rerail.assistant.cli.main import app
from rerail.errors import EvidenceError, UsageError

pytest.importorskip("pyarrow", reason="op timelines are Parquet, which needs rerail[fast]")

TRACE = Path(__file__).parents[1] / "data" / "straggler_ar" / "trace-AR.parquet"


def test_the_json_holds_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    assert localize_command([TRACE], json_output=True) == 0
    said = json.loads(capsys.readouterr().out)

    assert said["schema_version"] == 1
    assert said["outcome"] == "localized"
    (finding,) = said["findings"]
    assert finding["workers"] == [0]
    assert finding["where"] == {"dp_rank": 0, "stage": 0}
    assert {"function", "workers", "dimension", "reason", "lost_s"} <= set(finding)
    assert finding["dimension"] in ("beta", "mu", "sigma")
    assert said["slowdown"] == pytest.approx(1.97305, abs=5e-6)


def test_tables_and_plot(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plot = tmp_path / "ranks.svg"
    assert localize_command([TRACE], plot=plot) == 0

    shown = capsys.readouterr().out
    assert "slow worker" in shown
    assert "dp_rank 0, stage 0" in shown
    tree = ElementTree.fromstring(plot.read_text())
    assert len(tree.findall(".//{http://www.w3.org/2000/svg}rect")) > 16 * 44


def test_a_plot_can_be_a_png(tmp_path: Path) -> None:
    pytest.importorskip("resvg_py")
    plot = tmp_path / "ranks.png"
    assert localize_command([TRACE], plot=plot) == 0
    data = plot.read_bytes()
    assert data.startswith(b"\x89PNG")
    width, height = int.from_bytes(data[16:20]), int.from_bytes(data[20:24])
    assert width > 800
    assert height > 200


def test_logs_with_straggler_reports(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("step 1\nGPU relative performance:\n  Rank=17 Node=n05 Score=0.61\n")
    assert localize_command([log], json_output=True) == 0
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["workers"], finding["nodes"]) == ([17], ["n05"])
    assert f"{log}:3" in finding["reason"]


def test_bad_input_is_one_clear_error(tmp_path: Path) -> None:
    broken = tmp_path / "t.parquet"
    broken.write_bytes(b"not parquet at all")
    with pytest.raises(EvidenceError, match="not a readable Parquet"):
        localize_command([broken])
    with pytest.raises(UsageError, match="neither an SVG nor a PNG"):
        localize_command([TRACE], plot=tmp_path / "x.pdf")
    with pytest.raises(UsageError, match="no file"):
        localize_command([])


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--before", "x", "--plot", "a.svg"], "--plot and --before"),
        (["--before", "x", "--perfetto", "a.json"], "--perfetto and --before"),
        (["--before", "x", "--expected", "a.json"], "--expected and --before .* without --html"),
        (["--learn", "a.json", "--json"], "--json and --learn"),
        (["--learn", "a.json", "--html", "p.html"], "--html and --learn"),
        (["--learn", "a.json", "--before", "x"], "--before and --learn"),
    ],
)
def test_options_that_would_be_ignored_are_refused(options: list[str], named: str) -> None:
    found = CliRunner().invoke(app, ["localize", "traces", *options])
    assert isinstance(found.exception, UsageError)
    assert re.search(named, str(found.exception))


def test_a_shard_of_a_ray_scan_is_refused(tmp_path: Path) -> None:
    command = ["scan", str(tmp_path), "--out", str(tmp_path), "--shard", "0/2", "--ray", "auto"]
    found = CliRunner().invoke(app, command)
    assert "--shard and --ray" in str(found.exception)


def test_an_imbalance_without_a_reference_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    assert localize_command([TRACE.parents[1] / "kineto/dlrm"]) == 10
    shown = " ".join(capsys.readouterr().out.split())
    assert "own compute a step:" in shown
    assert "on rank 1; step" in shown
