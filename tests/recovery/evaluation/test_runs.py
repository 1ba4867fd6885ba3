"""Evaluation runs with real processes: failures, drift, resumption, a real harness and real Slurm."""

import os
import signal
import sys
import threading
import time

import pytest

from rerail.errors import ConfigError
from rerail.recovery.evaluation.coordinator import Coordinator
from rerail.recovery.evaluation.files import RunFolder
from rerail.recovery.evaluation.identity import hold_to
from rerail.recovery.evaluation.local_runner import LocalRunner
from rerail.recovery.evaluation.task_program import stage_model
from rerail.tools.evaluation.spec import parse_evaluation

# A harness of commands: writes the item numbers; a set whose file says so fails or is slow.
INFER = """
import json, os, sys, time
dataset, first, last, output, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5]
with open(f"{folder}/calls", "a") as calls:
    calls.write(f"{dataset} {first} {last}\\n")
fault = f"{folder}/{dataset}"
if os.path.exists(fault):
    what = open(fault).read().split()
    if what[0] == "always":
        sys.exit("the set is broken")
    if what[0] == "slow":
        time.sleep(float(what[1]))
    elif what[0] == "once":
        os.unlink(fault)
        sys.exit("a bad day")
    elif what[0] == "killed":
        os.unlink(fault)
        os.kill(os.getppid(), 9)
json.dump(list(range(first, last)), open(output, "w"))
"""
METRIC = "import json,sys,os; x=json.load(open(sys.argv[1])); json.dump({'sum': sum(x), 'n': len(x)}, open(sys.argv[2],'w'))"


def spec(folder, sets, gpus=2, **more):
    (folder / "infer.py").write_text(INFER)
    harness = {
        "kind": "command",
        "infer": [sys.executable, "-S", str(folder / "infer.py"), "{dataset}", "{first}", "{last}", "{output}", str(folder)],
        "metric": [sys.executable, "-S", "-c", METRIC, "{outputs}", "{output}"],
    }  # fmt: skip
    cluster = {"nodes": 1, "gpus_per_node": gpus, "cpus_per_node": 2}
    datasets = {n: {"items": 10, "metric_s": 0.1, **one} for n, one in sets.items()}
    return parse_evaluation({"datasets": datasets, "harness": harness, "cluster": cluster, **more})


def run(one, folder, runner=None):
    return Coordinator(one, runner or LocalRunner(one.gpus), folder / "run").run()


def test_a_run_scores_every_item_once_whatever_fails_on_the_way(tmp_path):
    (tmp_path / "b").write_text("once")
    (tmp_path / "c").write_text("killed")
    (tmp_path / "d").write_text("always")
    one = spec(tmp_path, {name: {"inference_s": 1} for name in "abcd"}, retries=1)
    found = run(one, tmp_path)
    assert {n: m["sum"] for n, m in found.metrics.items()} == dict.fromkeys("abc", 45.0)
    assert list(found.failed) == ["d"] and "the set is broken" in found.failed["d"]
    assert found.retried >= 3 and found.replanned  # d fails in one piece or in several


def test_short_metrics_share_a_process_and_one_that_fails_leaves_the_others(tmp_path):
    sets = {name: {"inference_s": 1, "items": 1} for name in "abcd"}
    one = spec(tmp_path, sets, retries=1)
    broken = "import json,sys; x=json.load(open(sys.argv[1])); json.dump({'n': 1 / (x[0] != 7)}, open(sys.argv[2],'w'))"
    harness = one.harness.model_copy(
        update={"metric": (sys.executable, "-S", "-c", broken, "{outputs}", "{output}")}
    )
    cluster = one.cluster.model_copy(update={"cpus_per_node": 1})
    one = one.model_copy(update={"harness": harness, "cluster": cluster})
    files = RunFolder(tmp_path / "run")
    files.prepare()
    for name in "abcd":
        files.write_output(name, 0, 1, [7 if name == "b" else 0])
    found = run(one, tmp_path)
    assert sorted(found.metrics) == ["a", "c", "d"]
    assert "ZeroDivisionError" in found.failed["b"] and found.tasks == 2


def test_names_of_sets_may_hold_slashes_and_never_share_a_file(tmp_path):
    names = ("org/set", "org_set", "../../org", ".hidden")
    one = spec(tmp_path, {name: {"inference_s": 1, "items": 3 + i} for i, name in enumerate(names)})
    found = run(one, tmp_path)
    assert {n: m["n"] for n, m in found.metrics.items()} == {n: 3 + i for i, n in enumerate(names)}
    assert {p.name for p in tmp_path.iterdir()} == {"infer.py", "calls", "run"}


def test_pieces_that_a_slow_set_holds_up_move_to_another_process(tmp_path):
    (tmp_path / "a").write_text("slow 2.5")
    sets = {
        "a": {"inference_s": 3, "items": 1},
        **{n: {"inference_s": 3, "items": 1} for n in "bcdef"},
    }
    one = spec(tmp_path, sets)
    found = run(one, tmp_path)
    assert len(found.metrics) == 6 and not found.failed
    assert found.replanned
    calls = (tmp_path / "calls").read_text().split("\n")[:-1]
    assert len(calls) == len(set(calls)) == 6  # every piece once


def test_a_run_goes_on_from_what_is_there(tmp_path):
    one = spec(tmp_path, {"a": {"inference_s": 1}, "b": {"inference_s": 1}})
    folder = RunFolder(tmp_path / "run")
    folder.prepare()
    folder.write_output("a", 0, 7, list(range(7)))
    folder.write_metric("b", {"sum": 1.0})
    found = run(one, tmp_path)
    assert found.metrics == {"a": {"sum": 45.0, "n": 10.0}, "b": {"sum": 1.0}}
    calls = (tmp_path / "calls").read_text().split("\n")
    assert all(
        c.startswith("a 7") or c.startswith("a 8") or c.startswith("a 9") for c in calls if c
    )


def test_the_model_is_copied_to_the_node_s_memory_once(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights").write_text("w")
    model = {"path": str(tmp_path / "model"), "memory": str(tmp_path / "shm"), "load_s": 1}
    one = spec(tmp_path, {"a": {"inference_s": 1}, "b": {"inference_s": 1}}, model=model)
    assert len(run(one, tmp_path).metrics) == 2
    copies = [p.name for p in (tmp_path / "shm").iterdir()]
    assert len(copies) == 1 and copies[0].startswith("model-")


def test_a_model_of_the_same_name_is_not_taken_from_memory(tmp_path):
    for folder, weights in (("old", "o"), ("new", "nn")):
        (tmp_path / folder / "model").mkdir(parents=True)
        (tmp_path / folder / "model" / "weights").write_text(weights)
        copy = stage_model(str(tmp_path / folder / "model"), str(tmp_path / "shm"))
        assert (copy / "weights").read_text() == weights
        assert stage_model(str(tmp_path / folder / "model"), str(tmp_path / "shm")) == copy


def _model(folder, name):
    (folder / name).mkdir(exist_ok=True)
    (folder / name / "weights").write_text(name)
    return {"path": str(folder / name)}


def _renamed(one, folder):
    return one.model_copy(update={"model": one.model.model_copy(update=_model(folder, "new"))})


def _other_weights(one, folder):
    (folder / "old" / "weights").write_text("trained further")
    return one


def _other_metric(one, folder):
    metric = (*one.harness.metric, "--exact")
    return one.model_copy(update={"harness": one.harness.model_copy(update={"metric": metric})})


def _other_program(one, folder):
    (folder / "infer.py").write_text(INFER + "# mended")
    return one


def _more_items(one, folder):
    more = one.datasets["a"].model_copy(update={"items": 20})
    return one.model_copy(update={"datasets": {"a": more}})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_renamed, r"model\.path was .*/old, is .*/new"),
        (_other_weights, "files of model.path changed since"),
        (_other_metric, "harness.metric was .*, is .* --exact"),
        (_other_program, r"file .*infer\.py changed since"),
        (_more_items, "datasets.a.items was 10, is 20"),
    ],
)
def test_results_of_something_else_are_not_taken(tmp_path, change, said):
    one = spec(tmp_path, {"a": {"inference_s": 1}}, model=_model(tmp_path, "old"))
    hold_to(tmp_path, one)
    hold_to(tmp_path, one)  # the same run goes on
    with pytest.raises(ConfigError, match=said) as told:
        hold_to(tmp_path, change(one, tmp_path))
    assert f"rm {tmp_path / 'identity.json'}" in told.value.hint


def test_a_folder_takes_further_sets_and_refuses_another_model(tmp_path):
    one = spec(tmp_path, {"a": {"inference_s": 1}}, model=_model(tmp_path, "old"))
    run(one, tmp_path)
    both = one.model_copy(update={"datasets": one.datasets | {"b": one.datasets["a"]}})
    assert sorted(run(both, tmp_path).metrics) == ["a", "b"]
    with pytest.raises(ConfigError, match="results of another run"):
        run(_renamed(both, tmp_path), tmp_path)


def test_an_interrupted_run_leaves_no_process_behind(tmp_path):
    (tmp_path / "a").write_text("slow 60")
    one = spec(tmp_path, {"a": {"inference_s": 1}}, gpus=1)
    runner = LocalRunner(1)
    threading.Thread(
        target=lambda: (
            _until(lambda: (tmp_path / "calls").exists()),
            os.kill(os.getpid(), signal.SIGINT),
        ),
        daemon=True,
    ).start()
    with pytest.raises(KeyboardInterrupt):
        run(one, tmp_path, runner)
    assert all(process.poll() is not None for process in runner.running.values())
    (tmp_path / "a").unlink()
    assert run(one, tmp_path).metrics["a"]["sum"] == 45.0  # what it had claimed is inferred now


def _until(ready):
    deadline = time.monotonic() + 60
    while not ready() and time.monotonic() < deadline:
        time.sleep(0.05)


@pytest.mark.slow
def test_lm_evaluation_harness_gives_the_numbers_of_its_own_run(tmp_path, monkeypatch):
    pytest.importorskip("lm_eval")
    pytest.importorskip("torch")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    from rerail.evals.evaluation.real_harness import direct_metrics, harness_spec

    one = harness_spec(tmp_path, {"sums_a": 90, "sums_b": 9, "gen_c": 8}, gpus=2)
    found = run(one, tmp_path)
    assert not found.failed
    direct = direct_metrics(tmp_path, list(one.datasets))
    assert found.metrics.keys() == direct.keys()
    for name, values in direct.items():
        assert found.metrics[name] == pytest.approx(values)
    pieces = list((tmp_path / "run" / "outputs" / "sums_a").iterdir())
    assert len(pieces) > 1  # it was split, and the numbers are the same
