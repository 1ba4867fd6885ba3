"""The public tools that the product is compared with: GNU grep, ripgrep, drain3."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from rerail.evals.bench.timing import Cost, cost_of_program

LITERAL = "out of memory. Tried"
"""One literal that occurs once in a generated log."""

DRAIN3 = "drain3==0.9.11"

_DRAIN_SCRIPT = """
import json, sys, time
from drain3 import TemplateMiner
with open(sys.argv[1], "rb") as f:
    lines = [raw.decode("utf-8", "replace").rstrip("\\n") for raw in f]
miner = TemplateMiner()
start = time.process_time()
groups = [miner.add_log_message(line)["cluster_id"] for line in lines]
seconds = time.process_time() - start
json.dump({"seconds": seconds, "lines": len(lines), "groups": groups}, open(sys.argv[2], "w"))
"""


def grep_count(path: Path, literal: str = LITERAL) -> Cost:
    """Return the cost of `grep -a -c -F literal` in the C locale."""
    return cost_of_program(["grep", "-a", "-c", "-F", literal, str(path)], expect=(0, 1))


def ripgrep_count(path: Path, literal: str = LITERAL) -> Cost | None:
    """Return the cost of single-threaded `rg -a -c -F literal`, or None where it is not there."""
    if shutil.which("rg") is None:
        return None
    return cost_of_program(["rg", "-j1", "-a", "-c", "-F", literal, str(path)], expect=(0, 1))


@dataclass(frozen=True, slots=True)
class DrainRun:
    """One run of drain3 with its default settings: CPU seconds and the group of each line."""

    seconds: float
    lines: int
    groups: list[int]


def drain3_run(lines: Path, folder: Path) -> DrainRun:
    """Mine a file of lines with drain3 in an environment of its own, made on first use.

    drain3 pins versions that clash with current packages, so it never enters ours.

    Raises:
        RuntimeError: when the environment cannot be made, without a network for example.
    """
    python = _drain_environment(folder)
    result = folder / "drain3.json"
    done = subprocess.run(
        [str(python), "-c", _DRAIN_SCRIPT, str(lines), str(result)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"drain3 failed: {done.stderr.strip()[-300:]}")
    found = json.loads(result.read_text(encoding="utf-8"))
    result.unlink()
    return DrainRun(found["seconds"], found["lines"], found["groups"])


def _drain_environment(folder: Path) -> Path:
    home = folder / ".venv-drain3"
    python = home / "bin" / "python"
    if (home / "ready").is_file():
        return python
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(home)],
        [str(python), "-m", "pip", "install", "--quiet", DRAIN3],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"no environment for drain3: {done.stderr.strip()[-300:]}")
    (home / "ready").touch()
    return python
