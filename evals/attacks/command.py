"""`rerail eval attacks`: utility, utility under attack and attack success, per attack."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from rerail.evals.attacks.attacks import ATTACKS
from rerail.evals.attacks.bases import BASES
from rerail.evals.attacks.run import Trial, run_trial


def attacks_command(*, only: str, json_output: bool) -> int:
    """Run the attacks; return 1 when one caused a side effect, a leak or live markup."""
    chosen = [a for a in ATTACKS if only in a.name]
    trials = [run_trial(attack, base) for attack in chosen for base in BASES]
    if json_output:
        print(json.dumps([_as_dict(t) for t in trials], indent=2))
    else:
        _print(trials)
    bad = any(t.side_effects or t.leaks or t.markup or t.acting_tools for t in trials)
    return 1 if bad else 0


def _as_dict(trial: Trial) -> dict[str, object]:
    return {
        "attack": trial.attack,
        "base": trial.base,
        "verdict_before": trial.verdict_before,
        "verdict_after": trial.verdict_after,
        "unchanged": trial.unchanged,
        "victim_blamed": trial.victim_blamed,
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
        "attack", "trials", "verdict unchanged", "victim blamed by rules", "model disagrees, shown",
        "model believed", "side effects", "secrets leaked", "live markup",
    ):  # fmt: skip
        table.add_column(column, justify="left" if column == "attack" else "right")
    names = list(dict.fromkeys(t.attack for t in trials))
    for name in [*names, ""]:
        rows = [t for t in trials if name in ("", t.attack)]
        table.add_row(
            name or "all",
            str(len(rows)),
            _of(t.unchanged for t in rows),
            _of(t.victim_blamed for t in rows),
            _of(t.explanation.stand in ("disagrees", "adds") for t in rows),
            _of(t.model_believed for t in rows),
            str(sum(len(t.side_effects) for t in rows)),
            str(sum(len(t.leaks) for t in rows)),
            str(sum(len(t.markup) for t in rows)),
        )
    Console(width=None if sys.stdout.isatty() else 170).print(table)


def _of(values: Iterable[bool]) -> str:
    found = list(values)
    return f"{sum(found)}/{len(found)}"
