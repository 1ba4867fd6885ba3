"""Runs scenarios several at a time into a folder for `record.py`; needs no package but torch.

For a GPU machine on which rerail is not installed and time is short:
`PYTHONPATH=src python -m rerail.evals.faultlab.keep RUNS --need cuda --jobs 4 --seconds 400`.
Scenarios that want the machine for themselves run one by one after all others. Those whose evidence
holds the kernel log never run beside each other, and the others must write nothing into it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from rerail.evals.faultlab.runner import run_scenario
from rerail.evals.faultlab.scenarios import Scenario, all_scenarios


def main(arguments: list[str] | None = None) -> None:
    """Run the scenarios named, or all that need something."""
    parser = argparse.ArgumentParser(prog="keep", description="run fault-lab scenarios in parallel")
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--need", help="all scenarios with this need")
    parser.add_argument("--skip-alone", action="store_true", help="none that wants all the machine")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3600, help="start nothing after that time")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    known = all_scenarios()
    if options.one:
        run = run_scenario(known[options.names[0]], options.out)
        limit = " (killed at its limit)" if run.timed_out else ""
        print(f"{run.scenario}: {run.skipped or f'exit {run.exit_code}, {run.wall_s} s{limit}'}")
        return
    chosen = [
        one
        for name, one in known.items()
        if name in options.names or (options.need and options.need in one.needs)
    ]
    deadline = time.monotonic() + options.seconds
    shared = [one for one in chosen if not one.alone]
    # The kernel log makes a queue of its own; who waits in it should start first.
    shared.sort(key=lambda one: not one.kernel_log)
    left = run_all(shared, options.out, options.jobs, deadline)
    if not options.skip_alone:
        left += run_all([one for one in chosen if one.alone], options.out, 1, deadline)
    print("not started:", " ".join(one.name for one in left) or "none")


def run_all(waiting: list[Scenario], out: Path, jobs: int, deadline: float) -> list[Scenario]:
    """Run the scenarios, each in a process of its own; return those that time did not allow."""
    waiting = list(waiting)
    running: dict[str, tuple[subprocess.Popen[bytes], Scenario]] = {}
    while running or (waiting and time.monotonic() < deadline):
        running = {name: one for name, one in running.items() if one[0].poll() is None}
        logged = any(scenario.kernel_log for _, scenario in running.values())
        free = [one for one in waiting if not (one.kernel_log and logged)]
        if free and len(running) < jobs and time.monotonic() < deadline:
            scenario = free[0]
            waiting.remove(scenario)
            command = [sys.executable, "-m", __spec__.name, str(out), scenario.name, "--one"]
            running[scenario.name] = (subprocess.Popen(command), scenario)
            continue
        time.sleep(0.1)
    return waiting


if __name__ == "__main__":
    main()
