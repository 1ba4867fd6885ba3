"""Evaluation runs on a real Slurm and on Ray: commands, lm-evaluation-harness, a node that goes away."""

import json
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from rerail.errors import ClusterError
from rerail.evals.cluster.lab import Lab, cannot_run
from rerail.recovery.evaluation.coordinator import Coordinator
from rerail.tools.evaluation.spec import parse_evaluation

METRIC = "import json,sys; x=json.load(open(sys.argv[1])); json.dump({'sum': sum(x)}, open(sys.argv[2],'w'))"
# Writes the item numbers; the first call for a set kills its task where a file says so, and waits for one.
INFER = """
import json, os, sys, time
dataset, first, last, output, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5]
open(f"{folder}/began-{dataset}-{os.environ.get('SLURMD_NODENAME', '')}", "w").close()
if os.path.exists(f"{folder}/{dataset}"):
    os.unlink(f"{folder}/{dataset}")
    os.kill(os.getppid(), 9)
while os.path.exists(f"{folder}/hold"):
    time.sleep(0.1)
json.dump(list(range(first, last)), open(output, "w"))
"""
on_slurm = pytest.mark.skipif(bool(cannot_run()), reason=cannot_run() or "-")
quiet_ray = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


def commands(folder, sets, nodes, retries=2):
    (folder / "infer.py").write_text(INFER)
    program = [sys.executable, "-S", str(folder / "infer.py")]
    return parse_evaluation(
        {
            "datasets": {n: {"items": 10, "inference_s": 1, "metric_s": 0.1} for n in sets},
            "harness": {
                "kind": "command",
                "infer": [*program, "{dataset}", "{first}", "{last}", "{output}", str(folder)],
                "metric": [sys.executable, "-S", "-c", METRIC, "{outputs}", "{output}"],
            },
            "cluster": {"nodes": nodes, "gpus_per_node": 1, "cpus_per_node": 2},
            "retries": retries,
        }
    )


def sums(found):
    return {name: values["sum"] for name, values in found.metrics.items()}


def kinds(folder):
    return [json.loads(p.read_text())["kind"] for p in (folder / "tasks").glob("*/task.json")]


@pytest.fixture
def tiny_tasks(tmp_path, monkeypatch):
    """A tiny model and tasks of lm-evaluation-harness: the spec, and the numbers of its own run."""
    pytest.importorskip("lm_eval")
    pytest.importorskip("torch")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    from rerail.evals.evaluation.real_harness import direct_metrics, harness_spec

    spec = harness_spec(tmp_path, {"sums_a": 60, "sums_b": 9, "gen_c": 8}, gpus=1)
    cluster = spec.cluster.model_copy(update={"nodes": 2})
    return spec.model_copy(update={"cluster": cluster}), direct_metrics(
        tmp_path, list(spec.datasets)
    )


def same_numbers(found, direct):
    assert not found.failed
    assert found.metrics.keys() == direct.keys()
    for name, values in direct.items():
        assert found.metrics[name] == pytest.approx(values)


@pytest.mark.slurm
@on_slurm
def test_a_run_on_a_real_slurm(tmp_path):
    from rerail.recovery.evaluation.slurm_runner import SlurmRunner

    (tmp_path / "b").write_text("killed")
    one = commands(tmp_path, "abcd", nodes=2)
    with Lab(2, accounting=False, rest=False) as lab:
        runner = SlurmRunner(environment=lab.environment)
        assert len(runner.nodes(2)) == 2
        found = Coordinator(one, runner, tmp_path / "run").run()
        assert runner.ended([]) == set()
    assert sums(found) == dict.fromkeys("abcd", 45.0)
    assert found.retried == 1 and not found.outages
    assert 1 <= kinds(tmp_path / "run").count("metric") <= 4


@pytest.mark.slurm
@pytest.mark.slow
@on_slurm
def test_a_node_of_a_real_slurm_that_goes_away_costs_no_set_without_any_retries(tmp_path):
    from rerail.recovery.evaluation.slurm_runner import SlurmRunner

    (tmp_path / "hold").touch()
    one = commands(tmp_path, "abcd", nodes=2, retries=0)
    told = []
    with Lab(2, accounting=False, rest=False) as lab:
        runner = SlurmRunner(["--exclusive"], lab.environment)  # one task a node
        gone = runner.nodes(2)[1]

        def take_away():
            _until(lambda: list(tmp_path.glob(f"began-*-{gone}")))
            lab.run("scontrol", "update", f"NodeName={gone}", "State=DOWN", "Reason=test")
            (tmp_path / "hold").unlink()

        thread = threading.Thread(target=take_away, daemon=True)
        thread.start()
        found = Coordinator(one, runner, tmp_path / "run", told.append).run()
        thread.join()
        assert runner.ended([]) == set()
    assert sums(found) == dict.fromkeys("abcd", 45.0)
    assert not found.failed and found.retried == 0
    assert any(one.startswith(f"node {gone} is tried out") for one in told)


@pytest.mark.slurm
@pytest.mark.nightly
@on_slurm
def test_lm_evaluation_harness_on_a_real_slurm_gives_the_numbers_of_its_own_run(
    tmp_path, tiny_tasks
):
    from rerail.recovery.evaluation.slurm_runner import SlurmRunner

    spec, direct = tiny_tasks
    with Lab(2, accounting=False, rest=False) as lab:
        runner = SlurmRunner(["--exclusive"], lab.environment)  # one task a node
        found = Coordinator(spec, runner, tmp_path / "run").run()
    same_numbers(found, direct)
    where = [
        json.loads(p.read_text())["node"]
        for p in (tmp_path / "run").glob("tasks/*trial/where.json")
    ]
    assert len(set(where)) == 2  # trials ran on both nodes
    assert len(list((tmp_path / "run" / "outputs" / "sums_a").iterdir())) > 1


@pytest.mark.parametrize(
    ("address", "said", "hint"),
    [
        (None, "Ray did not start on this machine: timed out", "raylet.out"),
        ("10.0.0.1:6379", "cannot be reached: timed out", "ray status"),
    ],
)
def test_a_ray_that_is_not_there_is_told_with_what_to_look_at(monkeypatch, address, said, hint):
    from rerail.recovery.evaluation.ray_runner import RayRunner

    def init(**_):
        raise Exception("timed out")  # as Ray raises it

    ray = SimpleNamespace(is_initialized=lambda: False, init=init)
    monkeypatch.setitem(sys.modules, "ray", ray)
    with pytest.raises(ClusterError, match=said) as told:
        RayRunner(address)
    assert hint in str(told.value.hint)


@pytest.mark.nightly
@quiet_ray
def test_a_run_on_ray(tmp_path):
    ray = pytest.importorskip("ray")
    from rerail.recovery.evaluation.ray_runner import RayRunner

    (tmp_path / "b").write_text("killed")
    one = commands(tmp_path, "abc", nodes=1)
    try:
        runner = _on_a_busy_machine(lambda: RayRunner(cpus=2))
        found = Coordinator(one, runner, tmp_path / "run").run()
        node = runner.nodes(1)
    finally:
        ray.shutdown()
    assert sums(found) == dict.fromkeys("abc", 45.0) and found.retried == 1
    where = [
        json.loads(p.read_text())["node"] for p in (tmp_path / "run").glob("tasks/*/where.json")
    ]
    assert set(where) == set(node)


@pytest.mark.nightly
@quiet_ray
def test_lm_evaluation_harness_on_ray_gives_the_numbers_of_its_own_run(tmp_path, tiny_tasks):
    ray = pytest.importorskip("ray")
    from rerail.recovery.evaluation.ray_runner import RayRunner

    spec, direct = tiny_tasks
    try:
        runner = _on_a_busy_machine(lambda: RayRunner(cpus=2))
        found = Coordinator(spec, runner, tmp_path / "run").run()
    finally:
        ray.shutdown()
    same_numbers(found, direct)


def _on_a_busy_machine(start):
    """Ray's node gives its agents 15 s to start each, which no setting makes longer (ray-project/ray#65983)."""
    for _ in range(3):
        try:
            return start()
        except ClusterError as error:
            told = error
    raise told


def _until(ready):
    deadline = time.monotonic() + 120
    while not ready() and time.monotonic() < deadline:
        time.sleep(0.1)
