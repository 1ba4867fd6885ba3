"""Process time of `rerail --help` and of `rerail diagnose` on a small job."""

from __future__ import annotations

import sys
from pathlib import Path

from rerail.evals.bench.bars import Bar
from rerail.evals.bench.generate import CULPRIT, Dataset, write_log
from rerail.evals.bench.timing import Cost, best_interleaved, cost_of_program

CALL = [sys.executable, "-c", "from rerail.assistant.cli.main import main; main()"]
# A user's installation has its bytecode; compiling the sources anew is not start-up.
_BYTECODE = {"PYTHONDONTWRITEBYTECODE": ""}
_EXIT_CODES = (0, 3, 10)  # failure found, none found, inconclusive


def diagnose(path: Path, home: Path) -> Cost:
    """Return the cost of `rerail diagnose PATH --json` as a new process."""
    # Storing the incident is part of the command, but not in the store of whoever measures.
    env = {
        "XDG_CACHE_HOME": str(home),
        "RERAIL_DATA_DIR": str(home / "data"),
        "NO_COLOR": "1",
        **_BYTECODE,
    }
    return cost_of_program([*CALL, "diagnose", str(path), "--json"], env=env, expect=_EXIT_CODES)


def measure(data: Dataset, *, runs: int) -> list[Bar]:
    """Measure both commands; the first diagnosis fills the cache and does not count."""
    job = data.folder / "small"
    job.mkdir(exist_ok=True)
    for rank in (CULPRIT, CULPRIT + 1):
        write_log(job / f"rank_{rank}.log", 200_000, seed=rank, rank=rank)
    home = data.folder / "home"
    baseline = "process time, user and system"
    try:
        diagnose(job, home)
        started, small = best_interleaved(
            runs,
            lambda: cost_of_program([*CALL, "--help"], env=_BYTECODE),
            lambda: diagnose(job, home),
        )
    except RuntimeError as error:
        return [Bar("startup", "rerail", 0.25, None, baseline, True, " s", str(error))]
    return [
        Bar("startup", "rerail --help", 0.25, started.cpu_s, baseline, True, " s"),
        Bar("startup", "rerail diagnose, small job, warm cache", 0.5, small.cpu_s, baseline, True,
            " s", f"two rank logs of 0.2 MB; wall {small.wall_s:.2f} s"),
    ]  # fmt: skip
