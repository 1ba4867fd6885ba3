import json
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rerail.assistant.pipeline import diagnose_paths
from rerail.evals.faultlab import gpu, keep, machine, runner
from rerail.evals.faultlab import record as recording
from rerail.evals.faultlab import score as scoring
from rerail.evals.faultlab.scenarios import Scenario, all_scenarios
from rerail.evals.faultlab.score import Verdict, read_truths, read_verdict

RECORDED = Path(__file__).parents[2] / "data" / "gpulab"
ON_GPU = [one for one in all_scenarios().values() if "cuda" in one.needs]
SIZE_LIMIT = 3_000_000


@pytest.fixture(autouse=True)
def no_memory_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    # What one test says of the machine holds for that test alone.
    monkeypatch.setattr(machine, "_no_gpu", machine._no_gpu.__wrapped__)


@pytest.mark.parametrize("name", sorted(read_truths(RECORDED / "truth.json")))
def test_a_recorded_run_is_told_right(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "logs").symlink_to(RECORDED / name)
    monkeypatch.chdir(tmp_path)

    def diagnose(logs: Path) -> Verdict:
        return read_verdict(diagnose_paths(["logs"]).diagnosis.model_dump(mode="json"))

    monkeypatch.setattr(scoring, "diagnose", diagnose)
    family, truth, place = read_truths(RECORDED / "truth.json")[name]
    one = scoring.score_run(name, family, truth, RECORDED / name, place)
    assert one.right, one.verdict


def test_the_recorded_set_is_small_and_names_its_machine() -> None:
    assert sum(path.stat().st_size for path in RECORDED.rglob("*") if path.is_file()) < SIZE_LIMIT
    runs = json.loads((RECORDED / "truth.json").read_text())["runs"]
    assert len(runs) > 40
    for entry in runs.values():
        assert {"python", "torch", "gpu", "driver"} <= set(entry["run"]["versions"])
    slow = runs["gpu_slow_phase"]["run"]
    assert "2026-11-26 18:43:11" < slow["slow_from"] < slow["slow_to"] < "2026-11-26 18:43:27"


def test_the_flight_recorder_of_the_watchdog_can_be_read() -> None:
    dump = pickle.loads((RECORDED / "nccl_watchdog" / "nccl_trace_rank_0").read_bytes())
    assert dump["entries"][-1]["state"] != "completed"
    assert "/lab/job/programs/nccl_fit.py" in str(dump["entries"])


@pytest.mark.parametrize(
    ("build", "nvidia_smi", "reason"),
    [
        ("2.11.0+cpu", True, "torch is built for the CPU only"),
        ("2.11.0", False, "no NVIDIA GPU here"),
        ("2.11.0", True, ""),
    ],
)
def test_a_machine_without_a_gpu_says_why(
    build: str,
    nvidia_smi: bool,
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine, "version", lambda package: build)
    program(tmp_path, "nvidia-smi", "exit 0" if nvidia_smi else "exit 9")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine.missing("cuda") == reason
    assert machine.missing("nvcc") == "nvcc is not installed"
    assert machine.missing("triton") in ("", "triton is not installed")


def program(folder: Path, name: str, body: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)


@pytest.mark.parametrize("scenario", ON_GPU, ids=lambda one: one.name)
def test_a_gpu_scenario_is_what_its_fields_say(scenario: Scenario, tmp_path: Path) -> None:
    if scenario.program:
        source = Path(runner.__file__).parent / "programs" / scenario.program
        compile(source.read_text(), scenario.program, "exec")
        assert not scenario.hooks
    count = scenario.torchrun[scenario.torchrun.index("--nproc-per-node") + 1]
    assert scenario.world == (int(count) if scenario.launcher == "torchrun" else 1)
    # The table of nvidia-smi shows the whole machine.
    assert scenario.alone or not scenario.smi


def test_nvidia_smi_and_the_neighbour_run_beside_and_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools, root = tmp_path / "tools", tmp_path / "run"
    tools.mkdir()
    (root / "logs").mkdir(parents=True)
    program(tools, "nvidia-smi", 'echo "Name, 580.1"; case "$*" in *-l*) sleep 60;; esac')
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    environment = {"PATH": f"{tools}:/usr/bin:/bin", "JOB_TOKEN": "t"}
    busy = Scenario("a", "f", "s", ON_GPU[0].truth, smi="beside", neighbour=("--leave-mib", "1"))
    # Without torch or without a GPU the neighbour cannot start, and the lab says what it said.
    monkeypatch.setattr(gpu.sys, "executable", "/bin/false")
    with pytest.raises(RuntimeError, match="did not start"), gpu.beside(busy, root, environment):
        pass
    program(tools, "python", 'touch "$5"; echo \'{"slow_from": "x"}\' > "$7"; sleep 60')
    monkeypatch.setattr(gpu.sys, "executable", str(tools / "python"))
    with gpu.beside(busy, root, environment):
        gpu.look("details", root / "logs")
    assert gpu.facts(root) == {"slow_from": "x"}
    assert gpu.facts(tmp_path) == {}
    names = {"nvidia-smi.csv", "nvidia-smi.txt", "nvidia-smi-q.txt"}
    assert {path.name for path in (root / "logs").iterdir()} == names
    found = gpu.versions()
    assert (found["gpu"], found["driver"]) == ("Name", "580.1")


def test_strings_inside_a_flight_recorder_dump_are_replaced(tmp_path: Path) -> None:
    logs = tmp_path / "runs" / "nccl_watchdog" / "logs"
    logs.mkdir(parents=True)
    (logs.parent / "meta.json").write_text(
        json.dumps({"exit_code": 1, "timed_out": False, "wall_s": 1, "versions": {}, "hosts": []})
    )
    frame = {"frames": [(f"{sys.prefix}/lib/a.py", 3)], "more": [f"{sys.prefix}/b"]}
    (logs / "nccl_trace_rank_0").write_bytes(pickle.dumps(frame))
    (logs / "dmesg.txt").write_text("NVRM: GPU Board Serial Number: 99\n")
    out = tmp_path / "out"
    out.mkdir()
    recording.record(tmp_path / "runs", out)
    dump = pickle.loads((out / "nccl_watchdog" / "nccl_trace_rank_0").read_bytes())
    assert dump == {"frames": [("/lab/venv/lib/a.py", 3)], "more": ["/lab/venv/b"]}
    assert "Number: 1234567890123\n" in (out / "nccl_watchdog" / "dmesg.txt").read_text()


def test_scenarios_with_a_kernel_log_never_run_beside_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Process:
        living: list[str] = []

        def __init__(self, command: list[str]) -> None:
            self.name = command[-2]
            self.living.append(self.name)
            seen.append(tuple(sorted(self.living)))
            self.left = 2

        def poll(self) -> int | None:
            self.left -= 1
            if self.left == 0:
                self.living.remove(self.name)
            return 0 if self.left <= 0 else None

    seen: list[tuple[str, ...]] = []
    monkeypatch.setattr(subprocess, "Popen", Process)
    monkeypatch.setattr(keep.time, "sleep", lambda seconds: None)
    plain = ON_GPU[0]
    jobs = [
        replace(plain, name=name, kernel_log=name.startswith("k")) for name in ("k1", "k2", "p1")
    ]
    assert keep.run_all(jobs, tmp_path, 3, keep.time.monotonic() + 60) == []
    assert ("k1", "p1") in seen
    assert not any({"k1", "k2"} <= set(one) for one in seen)
    assert keep.run_all(jobs, tmp_path, 3, 0.0) == jobs


def test_keep_takes_names_and_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[list[str]] = []

    def run_all(waiting: list[Scenario], out: Path, jobs: int, deadline: float) -> list[Scenario]:
        taken.append([one.name for one in waiting])
        return []

    monkeypatch.setattr(keep, "run_all", run_all)
    keep.main([str(tmp_path), "sigkill", "--need", "jax"])
    assert taken == [["sigkill", "jax_oom", "jax_nan_unnoticed"], []]
    keep.main([str(tmp_path), "gpu_steady", "--skip-alone"])
    assert taken[2:] == [[]]
    monkeypatch.setattr(machine, "_no_gpu", lambda: "no NVIDIA GPU here")
    keep.main([str(tmp_path), "gpu_steady", "--one"])
    assert not (tmp_path / "gpu_steady").exists()
