"""What the lab does beside a GPU job: a neighbour on the same GPU, nvidia-smi, caches, versions."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rerail.evals.faultlab.scenarios import Scenario

FACTS = "facts.json"
READY_LIMIT_S = 40
QUERY = (
    "timestamp,index,utilization.gpu,memory.used,clocks.sm,temperature.gpu,power.draw,"
    "clocks_throttle_reasons.active"
)
# Not the whole of `-q`: serial numbers belong to the machine, not to the fault.
SECTIONS = (
    "MEMORY,UTILIZATION,ECC,TEMPERATURE,POWER,CLOCK,COMPUTE,PIDS,PERFORMANCE,PAGE_RETIREMENT,"
    "ROW_REMAPPER"
)
PACKAGES = ("triton", "cupy-cuda13x", "jax", "lightning", "transformers")


def caches(root: Path) -> dict[str, str]:
    """Return variables that keep compilers and temporary files inside the run folder."""
    folder = root / "tmp"
    folder.mkdir(exist_ok=True)
    return {
        "TMPDIR": str(folder),
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TORCH_EXTENSIONS_DIR": str(folder / "extensions"),
        "CUPY_CACHE_DIR": str(folder / "cupy"),
    }


@contextmanager
def beside(scenario: Scenario, root: Path, environment: dict[str, str]) -> Iterator[None]:
    """Run the neighbour and nvidia-smi's rows while the job runs, and end them with it."""
    started = []
    # Without the token of the run: what a neighbour does is no left-over of the job.
    environment = {key: value for key, value in environment.items() if key != "JOB_TOKEN"}
    try:
        if scenario.smi == "beside":
            command = ["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv", "-l", "1"]
            with (root / "logs" / "nvidia-smi.csv").open("wb") as rows:
                started.append(subprocess.Popen(command, stdout=rows, env=environment))
        if scenario.neighbour:
            script = Path(__file__).parent / "programs" / "neighbour.py"
            ready = root / "ready"
            command = [sys.executable, str(script), *scenario.neighbour]
            command += ["--ready", str(ready), "--facts", str(root / FACTS)]
            with (root / "neighbour.log").open("wb") as log:
                started.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment))
            _await(ready, started[-1])
        yield
    finally:
        for process in started:
            process.terminate()
        for process in started:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _await(ready: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + READY_LIMIT_S
    while not ready.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            log = ready.with_name("neighbour.log").read_text(errors="replace")
            raise RuntimeError(f"the neighbour on the GPU did not start: {log[-2000:]}")
        time.sleep(0.1)


def look(kind: str, logs: Path) -> None:
    """Write what nvidia-smi shows right after the job, while a neighbour is still there."""
    commands = {
        "after": [["nvidia-smi"]],
        "details": [["nvidia-smi"], ["nvidia-smi", "-q", "-d", SECTIONS]],
    }.get(kind, [])
    for command, name in zip(commands, ("nvidia-smi.txt", "nvidia-smi-q.txt"), strict=False):
        shown = subprocess.run(command, capture_output=True, timeout=30)
        (logs / name).write_bytes(shown.stdout + shown.stderr)


def facts(root: Path) -> dict[str, str]:
    """Return what a neighbour noted of its own doings; it is no part of the evidence."""
    path = root / FACTS
    return dict(json.loads(path.read_text())) if path.exists() else {}


def versions() -> dict[str, str]:
    """Return the names of the GPU and the driver, and the versions of the packages in use."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    shown = subprocess.run(command, capture_output=True, text=True).stdout.partition(",")
    found = {"gpu": shown[0].strip(), "driver": shown[2].strip()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
