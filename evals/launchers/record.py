"""Makes the recorded set of `tests/data/launchers`: real text, only the machine's folders replaced."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rerail.evals.launchers import lab, slurm
from rerail.evals.launchers.hosts import FIRST_ADDRESS, SUBNET
from rerail.evals.launchers.job import Launcher
from rerail.evals.launchers.lab import Record
from rerail.evals.launchers.scenarios import SCENARIOS, Scenario
from rerail.evals.launchers.truth import TRUTH, truth_of


def record(
    launchers: Iterable[Launcher],
    scenarios: Iterable[Scenario],
    destination: Path,
    environment: Path,
    say: Callable[[str], None],
) -> None:
    """Run every fault under every launcher and write its logs and its truth."""
    wanted = list(scenarios)
    for launcher in launchers:
        for scenario in wanted:
            run = slurm.run if launcher.name in slurm.FORMS else lab.run
            done = run(launcher, scenario, environment)
            write(launcher, scenario, done, destination)
            limit = ", ended at the lab's limit" if done.timed_out else ""
            say(f"{launcher.name}/{scenario.name}: exit {done.exit_codes}, {done.wall_s} s{limit}")


def write(launcher: Launcher, scenario: Scenario, done: Record, destination: Path) -> None:
    """Write the logs of one run, and its truth among the others."""
    folder = destination / launcher.name / scenario.name
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in done.logs.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    place = destination / TRUTH
    stored: dict[str, Any] = (
        json.loads(place.read_text()) if place.exists() else {"schema_version": 1, "runs": {}}
    )
    host = min(1, len(launcher.hosts) - 1)
    entry = truth_of(
        launcher,
        scenario,
        done.logs,
        done.host or launcher.hosts[host],
        f"{SUBNET}.{FIRST_ADDRESS + host}",
    )
    entry["run"] = {
        "exit_codes": list(done.exit_codes),
        "wall_s": done.wall_s,
        "ended_by_lab": done.timed_out,
    }
    stored["runs"].setdefault(launcher.name, {})[scenario.name] = entry
    order = [one.name for one in SCENARIOS]
    stored["runs"] = {
        name: dict(sorted(runs.items(), key=lambda item: order.index(item[0])))
        for name, runs in sorted(stored["runs"].items())
    }
    place.write_text(json.dumps(stored, indent=1) + "\n")
