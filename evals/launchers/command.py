"""The body of `rerail eval launchers`: score the recorded runs, or make them anew."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from rerail.errors import UsageError
from rerail.evals.cases.score import Tally
from rerail.evals.launchers import hosts, launchers, scenarios
from rerail.evals.launchers.score import COLUMNS, WAYS, Scored, score_all, tally
from rerail.evals.launchers.truth import read_truths

RECORDED = Path("tests/data/launchers")
SETUP = Path(__file__).resolve().parent / "environment.sh"


def launchers_command(recorded: Path, only: list[str], *, json_output: bool, failures: bool) -> int:
    """Score the recorded runs and print the tables; return 0 when they could be scored.

    Raises:
        EvidenceError: There are no recordings.
        UsageError: A launcher or a fault has no such name.
    """
    truths = read_truths(recorded)
    names = {name for pair in truths for name in pair}
    _known(only, names)
    truths = {key: truth for key, truth in truths.items() if not only or set(only) & set(key)}
    found = {name: score_all(truths, recorded, way) for name, way in WAYS.items()}
    if json_output:
        sys.stdout.write(json.dumps(_payload(found), indent=1) + "\n")
        return 0
    # A pipe gets all columns on one line rather than folded cells.
    console = Console(width=None if sys.stdout.isatty() else 150)
    if failures:
        _print_failures(found["rerail"], console)
    console.print(_by_launcher(found["rerail"]))
    console.print(_by_way(found))
    console.print(
        f"{len(truths)} runs. A wrong rank or host is one that is named and not at fault. NVRx has no row: "
        "the releases with log attribution have no wheel for this Python, or they ask a model.",
        highlight=False,
    )
    return 0


def remake(only: list[str], destination: Path, environment: Path) -> int:
    """Run the faults anew and record them; packages go into an environment of their own.

    Raises:
        UsageError: The machine cannot make hosts, or a name is not known.
    """
    from rerail.evals.launchers.record import record

    _known(only, {*launchers.BY_NAME, *scenarios.BY_NAME})
    if reason := hosts.cannot_run():
        raise UsageError(reason, subject="launchers", hint="evals/launchers/install.sh, as root")
    wanted = [
        one
        for one in launchers.LAUNCHERS
        if _wanted(one.name, only, launchers.BY_NAME) and (one.name in only or not one.only_named)
    ]
    for name in dict.fromkeys(one.environment for one in wanted):
        subprocess.run(["bash", str(SETUP), str(environment), name], check=True)
    messages = Console(stderr=True)
    record(
        wanted,
        [one for one in scenarios.SCENARIOS if _wanted(one.name, only, scenarios.BY_NAME)],
        destination,
        environment.resolve(),
        lambda text: messages.print(text, highlight=False),
    )
    return 0


def _wanted(name: str, only: list[str], names: object) -> bool:
    chosen = [one for one in only if isinstance(names, dict) and one in names]
    return not chosen or name in chosen


def _known(only: list[str], names: set[str]) -> None:
    unknown = sorted(set(only) - names)
    if unknown:
        raise UsageError(
            f"no launcher or fault is called {unknown[0]!r}",
            subject=unknown[0],
            hint="known: " + ", ".join(sorted(names)),
        )


def _cells(total: Tally) -> list[str]:
    return [
        f"{total.right.get(column, 0)}/{total.asked[column]}" if total.asked.get(column) else "-"
        for column in COLUMNS
    ]


def _by_launcher(scores: list[Scored]) -> Table:
    table = Table(title="rerail under each launcher")
    for column in ("launcher", *COLUMNS):
        table.add_column(column, justify="left" if column == "launcher" else "right")
    for name in dict.fromkeys(one.launcher for one in scores):
        table.add_row(name, *_cells(tally([one for one in scores if one.launcher == name])))
    table.add_section()
    for name in dict.fromkeys(one.scenario for one in scores):
        table.add_row(name, *_cells(tally([one for one in scores if one.scenario == name])))
    return table


def _by_way(found: dict[str, list[Scored]]) -> Table:
    table = Table(title="beside the simpler ways")
    for column in ("", *COLUMNS):
        table.add_column(column, justify="right" if column else "left")
    for name, scores in found.items():
        table.add_row(name, *_cells(tally(scores)))
    return table


def _print_failures(scores: list[Scored], console: Console) -> None:
    for one in scores:
        if one.right:
            continue
        wrong = [
            column
            for column, right in one.columns.items()
            if right is column.startswith(("wrong", "false"))
        ]
        answer, truth = one.answer, one.truth
        console.print(
            f"{one.launcher}/{one.scenario}: {', '.join(wrong)}: said {answer.leaf} at {answer.line} "
            f"ranks {sorted(answer.ranks or ())} hosts {sorted(answer.hosts or ())}; want "
            f"{'/'.join(truth.leaves) or 'no failure'} at {dict(truth.lines)} rank {truth.rank} host {truth.host}",
            markup=False, highlight=False, soft_wrap=True,
        )  # fmt: skip


def _payload(found: dict[str, list[Scored]]) -> dict[str, object]:
    def counts(total: Tally) -> dict[str, object]:
        return {"right": total.right, "asked": total.asked}

    ours = found["rerail"]
    return {
        "schema_version": 1,
        "ways": {name: counts(tally(scores)) for name, scores in found.items()},
        "launchers": {
            name: counts(tally([one for one in ours if one.launcher == name]))
            for name in dict.fromkeys(one.launcher for one in ours)
        },
        "wrong": [f"{one.launcher}/{one.scenario}" for one in ours if not one.right],
    }
