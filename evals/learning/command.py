"""`rerail eval learning`: how the share answered by rules grows, and what happens to precision."""

from __future__ import annotations

import json
import sys

from rich.console import Console
from rich.table import Table

from rerail.evals.learning.replay import Month, Replay
from rerail.evals.learning.year import year


def learning_command(*, seed: int, incidents: int, json_output: bool) -> int:
    """Replay one synthetic year in three ways; return 0."""
    cases = year(seed=seed, incidents=incidents)
    runs = [
        Replay("shipped rules", learns=False, gated=False).run(cases),
        Replay("learned, every proposal live", learns=True, gated=False).run(cases),
        Replay("learned, judged, shadowed, reviewed", learns=True, gated=True).run(cases),
    ]
    if json_output:
        print(json.dumps([_as_dict(run) for run in runs], indent=2))
        return 0
    table = Table(title=f"a year of {len(cases)} incidents, quarters", box=None)
    table.add_column("")
    for quarter in range(1, 5):
        table.add_column(f"Q{quarter} answered", justify="right")
        table.add_column("precision", justify="right")
    for column in ("rules in force", "refused", "rejected in shadow"):
        table.add_column(column, justify="right")
    for run in runs:
        cells = []
        for quarter in range(4):
            part = run.months[3 * quarter : 3 * quarter + 3]
            cells += [_share(part), _precision(part)]
        table.add_row(run.name, *cells, str(len(run.accepted)), str(run.refused), str(run.rejected))
    Console(width=None if sys.stdout.isatty() else 190).print(table)
    return 0


def _share(months: list[Month]) -> str:
    total = sum(m.incidents for m in months)
    return f"{sum(m.answered for m in months) / total:.2f}" if total else "-"


def _precision(months: list[Month]) -> str:
    answered = sum(m.answered for m in months)
    return f"{sum(m.right for m in months) / answered:.3f}" if answered else "-"


def _as_dict(run: Replay) -> dict[str, object]:
    return {
        "name": run.name,
        "months": [[m.incidents, m.answered, m.right, m.rules] for m in run.months],
        "accepted": [[c.leaf, c.pattern] for c in run.accepted],
        "refused": run.refused,
        "rejected": run.rejected,
    }
