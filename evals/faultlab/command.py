"""The body of `rerail eval faultlab`: run or read scenarios, score them, show the scores."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from rich.console import Console

from rerail.errors import EvidenceError, UsageError
from rerail.evals.faultlab import report
from rerail.evals.faultlab.runner import run_scenario
from rerail.evals.faultlab.scenarios import all_scenarios
from rerail.evals.faultlab.score import Place, Score, read_truths, score_run


def faultlab_command(
    scenarios: list[str], out: Path | None, recorded: Path | None, json_output: bool
) -> int:
    """Run scenarios, or read recorded ones, and score the diagnosis of each.

    Args:
        scenarios: Names to run; empty for all.
        out: Folder that keeps the runs; None for a temporary one.
        recorded: Folder with recorded runs and a `truth.json`; nothing is run then.
        json_output: Whether to print JSON instead of a table.

    Returns:
        0 if every run is right in everything, 1 if not.

    Raises:
        UsageError: A scenario has no such name.
        EvidenceError: The recorded folder has no `truth.json`.
    """
    messages = Console(stderr=True)
    skipped: dict[str, str] = {}
    if recorded is not None:
        scores = _score_recorded(scenarios, recorded)
    elif out is not None:
        scores, skipped = _run_and_score(scenarios, out, messages)
    else:
        with tempfile.TemporaryDirectory(prefix="rerail-lab-") as folder:
            scores, skipped = _run_and_score(scenarios, Path(folder), messages)
    if json_output:
        print(report.as_json(scores, skipped))
    else:
        # rich takes a pipe for 80 columns wide, too narrow for this table.
        report.show(scores, skipped, Console(width=None if sys.stdout.isatty() else 190))
    return 0 if all(one.right for one in scores) else 1


def _chosen(wanted: list[str], known: list[str]) -> list[str]:
    unknown = sorted(set(wanted) - set(known))
    if unknown:
        raise UsageError(
            f"no fault-lab scenario is called {unknown[0]!r}",
            subject=unknown[0],
            hint="known: " + ", ".join(known),
        )
    return [name for name in known if name in wanted] if wanted else known


def _run_and_score(
    wanted: list[str], out: Path, messages: Console
) -> tuple[list[Score], dict[str, str]]:
    known = all_scenarios()
    scores: list[Score] = []
    skipped: dict[str, str] = {}
    for name in _chosen(wanted, list(known)):
        scenario = known[name]
        run = run_scenario(scenario, out)
        if run.skipped:
            skipped[name] = run.skipped
            continue
        limit = " (killed at its limit)" if run.timed_out else ""
        messages.print(f"{name}: exit {run.exit_code}, {run.wall_s} s{limit}", highlight=False)
        place = Place(hosts=run.hosts)
        logs = out / name / "logs"
        scores.append(score_run(name, scenario.family, scenario.truth, logs, place))
    return scores, skipped


def _score_recorded(wanted: list[str], recorded: Path) -> list[Score]:
    truth_file = recorded / "truth.json"
    if not truth_file.is_file():
        raise EvidenceError(
            f"no truth.json in {str(recorded)!r}",
            subject=str(recorded),
            hint="recorded runs are made by python -m rerail.evals.faultlab.record",
        )
    truths = read_truths(truth_file)
    scores = []
    for name in _chosen(wanted, list(truths)):
        family, truth, place = truths[name]
        scores.append(score_run(name, family, truth, recorded / name, place))
    return scores
