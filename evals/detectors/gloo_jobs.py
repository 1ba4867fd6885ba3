"""Real gloo processes with an injected delay: what localisation sees of a real slow rank (L3)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from rich.console import Console

from rerail.domain.series import FloatArray
from rerail.tools.detectors.workload import running_median
from rerail.tools.localize.findings import Localization
from rerail.tools.localize.localize_paths import localize_paths

_LIMIT_S = 180


def torch_missing() -> str | None:
    """Return why the jobs cannot run here, or None."""
    from importlib.util import find_spec

    return None if find_spec("torch") else "torch is not installed (pip install 'rerail[faultlab]')"


def run_worker(module: str, world: int, *arguments: str, limit_s: float = _LIMIT_S) -> None:
    """Run a module as a job of `world` processes under torchrun, one thread each.

    Raises:
        RuntimeError: the job failed; with its last output.
    """
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
        str(world), "-m", module, *arguments,
    ]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=limit_s, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"the gloo job failed: {done.stderr[-2000:]}")


def run_ranks(module: str, folder: Path, world: int, *arguments: str, limit_s: float) -> None:
    """Run a module as `world` plain processes, one thread each; each is told folder, rank and world size first.

    Raises:
        RuntimeError: the job failed; with its last output.
        subprocess.TimeoutExpired: it took longer than `limit_s` seconds.
    """
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", module, str(folder), str(rank), str(world), *arguments],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        for rank in range(world)
    ]  # fmt: skip
    try:
        said = [process.communicate(timeout=limit_s)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    if any(process.returncode for process in processes):
        raise RuntimeError(f"the gloo job failed: {' '.join(said)[-2000:]}")


def run_job(
    folder: Path, world: int = 4, steps: int = 10, slow: int = -1, delay_s: float = 0.0
) -> FloatArray:
    """Run one job of `world` processes and return the step times, shape (world, steps + 2).

    Raises:
        RuntimeError: the job failed or took longer than three minutes; with its last output.
    """
    worker = "rerail.evals.detectors.gloo_worker"
    run_worker(worker, world, str(folder), str(steps), str(slow), str(delay_s))
    rows = [json.loads((folder / f"steps{rank}.txt").read_text()) for rank in range(world)]
    for rank in range(world):
        (folder / f"steps{rank}.txt").unlink()
    return np.array(rows)


def gloo_noise(steps: int = 3000) -> tuple[FloatArray, ...]:
    """Return log residuals [n] of the step times of a real healthy job; none without torch."""
    if torch_missing():
        return ()
    with TemporaryDirectory() as name:
        times = run_job(Path(name), world=2, steps=steps)
    logs = np.log(times[0, 50:])
    return (np.asarray(logs - running_median(logs, 101)),)


def judge_job(world: int, slow: int, delay_s: float) -> Localization:
    """Run a job, localise from its profiler traces, and return the verdict."""
    with TemporaryDirectory() as name:
        run_job(Path(name), world, slow=slow, delay_s=delay_s)
        return localize_paths([Path(name)])[0].localization


def gloo_table(out: Console, runs: int = 5) -> dict[str, bool]:
    """Delay each rank in turn by five times the noise of a healthy job; bar L3."""
    reason = torch_missing()
    if reason:
        out.print(f"skipped: L3 ({reason})", markup=False)
        return {}
    world = 4
    with TemporaryDirectory() as name:
        times = run_job(Path(name), world)[0, 2:]
    noise = 1.4826 * float(np.median(np.abs(times - np.median(times)))) / 3
    delay = max(0.004, 5 * noise)
    right = 0
    for number in range(runs):
        slow = number % world
        found = judge_job(world, slow, delay).findings
        right += bool(found) and found[0].workers == (slow,)
    quiet = judge_job(world, -1, 0.0)
    out.print(
        f"real gloo, {world} processes, noise {1e3 * noise:.2f} ms per collective, delay "
        f"{1e3 * delay:.1f} ms: culprit named in {right} of {runs} runs; healthy run: "
        f"{quiet.outcome}",
        markup=False,
    )
    return {"L3: culprit named in every run with a delay of 5x the noise": right == runs}
