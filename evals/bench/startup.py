"""Process time of `rerail --help` and of `rerail diagnose` on a small job."""

from __future__ import annotations

import sys
from pathlib import Path

from rerail.evals.bench.bars import Bar
from rerail.evals.bench.generate import CULPRIT, Dataset, write_log
from rerail.evals.bench.timing import Cost, best_interleaved, cost_of_program
from rerail.log_parsers.scan import SMALL

CALL = [sys.executable, "-c", "from rerail.assistant.entry import main; main()"]
# A user's installation has its bytecode; compiling the sources anew is not start-up.
_BYTECODE = {"PYTHONDONTWRITEBYTECODE": ""}
_EXIT_CODES = (0, 3, 10)  # failure found, none found, inconclusive


def diagnose(path: Path, home: Path) -> Cost:
    """Return the cost of `rerail diagnose PATH --json` as a new process."""
    # Storing the incident is part of the command, but not in the store of whoever measures.
    env = {
        "RERAIL_CACHE_DIR": str(home),
        "RERAIL_DATA_DIR": str(home / "data"),
        "NO_COLOR": "1",
        **_BYTECODE,
    }
    return cost_of_program([*CALL, "diagnose", str(path), "--json"], env=env, expect=_EXIT_CODES)


def measure(data: Dataset, *, runs: int) -> list[Bar]:
    """Measure both commands in starts of a bare interpreter; the first diagnoses fill the caches and do not count.

    The cold one has no compiled rules, as whoever has not yet diagnosed a large log.
    """
    job = data.folder / "small"
    job.mkdir(exist_ok=True)
    for rank in (CULPRIT, CULPRIT + 1):
        write_log(job / f"rank_{rank}.log", 12_000, seed=rank, rank=rank)
    large = data.folder / "large.log"
    write_log(large, 2 * SMALL, seed=1, rank=CULPRIT)
    warm, cold = data.folder / "home", data.folder / "cold"
    baseline = "starts of a bare interpreter, CPU time"
    try:
        diagnose(large, warm)
        diagnose(job, warm)
        diagnose(job, cold)
        bare, listed, small, without = best_interleaved(
            runs,
            lambda: cost_of_program([sys.executable, "-c", "pass"], env=_BYTECODE),
            lambda: cost_of_program([*CALL, "--help"], env=_BYTECODE),
            lambda: diagnose(job, warm),
            lambda: diagnose(job, cold),
        )
    except RuntimeError as error:
        return [Bar("startup", "rerail", 8, None, baseline, True, "x", str(error))]

    def bar(what: str, most: float, cost: Cost) -> Bar:
        times = cost.cpu_s / bare.cpu_s
        return Bar("startup", what, most, times, baseline, True, "x", f"{cost.cpu_s:.2f} s")

    return [
        bar("rerail --help", 8, listed),
        bar("rerail diagnose, two rank logs of 12 kB, rules compiled", 20, small),
        bar("the same, rules not compiled", 30, without),
    ]
