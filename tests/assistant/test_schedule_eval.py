"""`rerail forecast` and `rerail schedule-eval` as their users call them."""

import json

import pytest
import yaml

from rerail.assistant.cli.forecast import forecast_command
from rerail.assistant.cli.schedule_eval import schedule_eval_command
from rerail.errors import ClusterError, UsageError
from rerail.tools.forecast.forecast import forecast
from rerail.tools.forecast.spec import parse_spec, read_spec

SETS = {
    "long": {"inference_s": 300, "items": 100, "metric_s": 20},
    "short": {"inference_s": 30, "items": 10},
}
STEP = {
    "name": "small",
    "parallel": {"tp": 2, "pp": 2, "dp": 2},
    "schedule": {"micro_batches": 4},
    "pools": {"f": {"mean_s": 1.0, "cv": 0.05}},
    "passes": {"forward": ["f"], "backward": ["f"]},
    "nodes": {"gpus_per_node": 2, "slow": [{"node": 3, "ratio": 1.2}]},
    "job": {"steps": 500_000, "failures_per_node_day": 0.01, "checkpoint_s": 5, "restart_s": 60},
}  # fmt: skip


@pytest.fixture
def spec(tmp_path):
    path = tmp_path / "eval.yaml"
    path.write_text(yaml.safe_dump({"datasets": SETS, "cluster": {"gpus_per_node": 2}}))
    return path


def test_the_plan_stands_beside_two_rules_and_is_drawn(spec, tmp_path, capsys):
    plot, page = tmp_path / "plan.svg", tmp_path / "plan.html"
    assert schedule_eval_command(spec, plot=plot, html=page) == 0
    shown = capsys.readouterr().out
    assert "OpenCompass SizePartitioner" in shown and "one job per data set" in shown
    assert "nothing was started" in shown and f"page written to {page}" in shown
    assert plot.read_text().startswith("<?xml") and "long" in page.read_text()


def test_the_plan_as_json_covers_every_item(spec, capsys):
    assert schedule_eval_command(spec, json_output=True) == 0
    row = json.loads(capsys.readouterr().out)
    pieces = [piece for trial in row["trials"] for piece in trial if piece["dataset"] == "long"]
    assert sum(piece["last"] - piece["first"] for piece in pieces) == 100
    assert row["run"] is None and row["others_s"].keys() == {"one job per data set", "OpenCompass SizePartitioner"}  # fmt: skip


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("--runner", {"runner": "pbs"}),
        ("is no folder", {"html": "missing/plan.html"}),
        ("neither an SVG nor a PNG", {"plot": "plan.pdf"}),
        ("nothing says how to evaluate", {"run": True, "folder": "out"}),
    ],
)
def test_what_cannot_be_done_is_told_before_anything_is_started(spec, tmp_path, said, asked):
    paths = {k: tmp_path / v if k in ("html", "plot", "folder") else v for k, v in asked.items()}
    with pytest.raises((UsageError, ClusterError), match=said):
        schedule_eval_command(spec, **paths)
    assert not (tmp_path / "out").exists()


def test_a_forecast_names_places_days_and_writes_its_page(tmp_path, capsys):
    path, page = tmp_path / "spec.yaml", tmp_path / "f.html"
    path.write_text(yaml.safe_dump(STEP))
    assert forecast_command([path], samples=400, html=page) == 0
    shown = capsys.readouterr().out
    assert "node 3 -> replica" in shown and " d " in shown
    assert "node 3 &rarr;" in page.read_text()


def test_page_and_plot_show_the_what_if_and_name_its_column(tmp_path, capsys):
    path, page, plot = tmp_path / "spec.yaml", tmp_path / "f.html", tmp_path / "f.svg"
    path.write_text(yaml.safe_dump({key: value for key, value in STEP.items() if key != "job"}))
    changes = [
        "schedule.micro_batches=8",
        "job.steps=1000",
        "job.failures_per_node_day=0.01",
        "job.checkpoint_s=5",
    ]
    assert forecast_command([path], samples=400, html=page, plot=plot, changes=changes) == 0
    shown = capsys.readouterr().out
    job = next(line for line in shown.splitlines() if " job " in line)
    assert "what if" in job and "as given" not in job
    text = page.read_text()
    assert "What if: schedule.micro_batches=8, job.steps=1000" in text
    assert "<td>as given</td>" in text and text.count("<td>what if</td>") == 2
    assert (
        "red line: what if" in plot.read_text() and "what if (red): 1,000 steps" in plot.read_text()
    )


@pytest.mark.parametrize(
    ("parallel", "nodes", "said"),
    [
        ({"tp": 2, "pp": 2, "dp": 2}, {"gpus_per_node": 4}, r"tp x cp = 2 GPUs where nodes.gpus_per_node is 4"),
        ({"tp": 2, "pp": 2, "dp": 2, "fsdp": 2}, {"gpus_per_node": 2}, "fsdp or ep above 1"),
    ],
)  # fmt: skip
def test_slow_nodes_that_are_not_placed_are_explained(parallel, nodes, said):
    slow = {"slow": [{"node": 1, "ratio": 1.2}]}
    found = forecast(parse_spec(STEP | {"parallel": parallel, "nodes": nodes | slow}), samples=64)
    assert found.placement is None and any(said in note for note in found.to_json()["notes"])
    healthy = forecast(parse_spec(STEP | {"parallel": parallel, "nodes": nodes}), samples=64)
    assert not healthy.left_out


def test_many_pools_of_few_kernels_are_compared_and_of_many_left_out_with_a_note():
    def found(kernels):
        pools = {f"p{i}": {"mean_s": 0.1, "kernel": f"k{i % kernels}"} for i in range(48)}
        passes = {"forward": list(pools), "backward": list(pools)}
        return forecast(parse_spec(STEP | {"pools": pools, "passes": passes}), samples=64)

    assert {one.kernel for one in found(2).sensitivity} == {"k0", "k1"}
    many = found(48)
    assert not many.sensitivity and "48 classes of kernels, at most 40" in many.left_out[0]


def test_the_critical_path_of_a_graph_names_ranks(tmp_path, capsys):
    path, page = tmp_path / "spec.yaml", tmp_path / "f.html"
    graph = {"load": {"pool": "f", "rank": 5}, "use": {"pool": "f", "rank": 7, "after": ["load"]}}
    path.write_text(yaml.safe_dump({"name": "g", "pools": STEP["pools"], "graph": graph}))
    assert forecast_command([path], samples=64, html=page) == 0
    shown = capsys.readouterr().out
    assert "of rank 5" in shown and "of stage" not in shown
    assert "rank 5" in page.read_text() and "stage" not in page.read_text()
    row = forecast(read_spec(path), samples=64).to_json()["critical_path"]
    assert {(one["stage"], one["rank"], one["position"]) for one in row} == {
        (None, 5, None),
        (None, 7, None),
    }
    piped = forecast(parse_spec(STEP), samples=64).to_json()["critical_path"]
    assert {one["rank"] for one in piped} == {None} and {one["stage"] for one in piped} <= {0, 1}
    assert {one["position"] for one in piped} <= {"warm-up", "steady", "cool-down"}
