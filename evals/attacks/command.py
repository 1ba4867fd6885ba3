"""`rerail eval attacks`: utility, utility under attack and attack success, per attack."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from rerail.errors import UsageError
from rerail.evals.attacks.attacks import ATTACKS
from rerail.evals.attacks.bases import BASES
from rerail.evals.attacks.run import Trial, run_trial


def attacks_command(*, only: str, json_output: bool) -> int:
    """Run the attacks; return 1 when one got anything done, or changed a verdict without forging a whole failure."""
    chosen = [a for a in ATTACKS if only in a.name]
    if not chosen:
        raise UsageError(
            f"no attack has '{only}' in its name",
            subject=only,
            hint="known: " + ", ".join(a.name for a in ATTACKS),
        )
    trials = [run_trial(attack, base) for attack in chosen for base in BASES]
    if json_output:
        print(json.dumps([_as_dict(t) for t in trials], indent=2))
    else:
        _print(trials)
    bad = any(t.succeeded or not (t.unchanged or t.whole) for t in trials)
    return 1 if bad else 0


def _as_dict(trial: Trial) -> dict[str, object]:
    return {
        "attack": trial.attack,
        "base": trial.base,
        "whole_failure_forged": trial.whole,
        "verdict_before": trial.verdict_before,
        "verdict_after": trial.verdict_after,
        "unchanged": trial.unchanged,
        "victim_blamed": trial.victim_blamed,
        "useful_before": trial.useful[0],
        "useful_after": trial.useful[1],
        "model_stand": trial.explanation.stand,
        "model_status": str(trial.explanation.status),
        "model_believed": trial.model_believed,
        "side_effects": trial.side_effects,
        "leaks": trial.leaks,
        "markup": trial.markup,
    }


def _print(trials: list[Trial]) -> None:
    table = Table(title="attacks, with a model that always obeys the attacker", box=None)
    for column in (
        "attack", "trials", "verdict unchanged", "changed one established", "victim blamed by rules",
        "model disagrees, shown", "model believed", "side effects", "secrets leaked", "live markup",
    ):  # fmt: skip
        table.add_column(column, justify="left" if column == "attack" else "right")
    lines = [t for t in trials if not t.whole]
    whole = [t for t in trials if t.whole]
    for title, rows in (("lines in logs and knowledge", lines), ("a whole failure forged", whole)):
        if not rows:
            continue
        table.add_row(f"[bold]{title}[/bold]")
        for name in dict.fromkeys(t.attack for t in rows):
            _row(table, "  " + name, [t for t in rows if t.attack == name])
        _row(table, "  together", rows)
    _row(table, "all", trials)
    console = Console(width=None if sys.stdout.isatty() else 190)
    console.print(table)
    bases = list({t.base: t for t in trials}.values())
    console.print(
        f"utility (failure type right) {_of(t.useful[0] for t in bases)}; under attack "
        f"{_of(t.useful[1] for t in lines)}, with a whole failure forged {_of(t.useful[1] for t in whole)}; "
        f"attacks that got an action, a secret, live markup or belief {_of(t.succeeded for t in trials)}"
    )


def _row(table: Table, name: str, rows: list[Trial]) -> None:
    table.add_row(
        name,
        str(len(rows)),
        _of(t.unchanged for t in rows),
        _of(t.established for t in rows if not t.unchanged),
        _of(t.victim_blamed for t in rows),
        _of(t.explanation.stand in ("disagrees", "adds") for t in rows),
        _of(t.model_believed for t in rows),
        str(sum(len(t.side_effects) for t in rows)),
        str(sum(len(t.leaks) for t in rows)),
        str(sum(len(t.markup) for t in rows)),
    )


def _of(values: Iterable[bool]) -> str:
    found = list(values)
    return f"{sum(found)}/{len(found)}" if found else "-"
