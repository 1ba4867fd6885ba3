"""The body of `rerail eval health`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from rerail.evals.health.real import RealRun, run_real
from rerail.evals.health.simulate import SIZES, Row, intermittent, simulate


def health_command(runs: int, *, real: bool, json_output: bool) -> int:
    """Score the health tests; 0 if bar H1 holds and the real runs named the right nodes."""
    rows = [simulate(nodes, runs, 1) for nodes in SIZES]
    found = {repeats: intermittent(0.8, repeats, 20 * runs) for repeats in (1, 3)}
    really: list[RealRun] = []
    if real:
        really = [
            run_real(4),
            run_real(5, dead=3),
            run_real(5, throttled=2),
            run_real(6, dead=1, throttled=4),
        ]
    bar = all(row.exact == row.runs and row.slow_false[3] <= 0.5 for row in rows)
    right = all(_right(run) for run in really)
    if json_output:
        print(
            json.dumps(
                {"H1": bar, "rows": [asdict(r) for r in rows], "real": [asdict(r) for r in really]}
            )
        )
    else:
        _show(rows, found, really, bar)
    return 0 if bar and right else 1


def _right(run: RealRun) -> bool:
    if run.report is None:
        return False
    dead = [f"node{run.dead}"] if run.dead is not None else []
    slow = [f"node{run.throttled}"] if run.throttled is not None else []
    return run.report["faulty"] == dead and list(run.report["slow"]) == slow


def _show(rows: list[Row], found: dict[int, float], really: list[RealRun], bar: bool) -> None:
    console = Console(width=None if sys.stdout.isatty() else 130)
    table = Table(
        title="Simulated: exact sets; false and missed slow nodes a run after 1, 2, 3 rounds"
    )
    for name in ("nodes", "faulty", "exact", "rounds", "slow", "false 1 2 3", "missed 3"):
        table.add_column(name, justify="right")
    for row in rows:
        false = " ".join(f"{row.slow_false[n]:.2f}" for n in (1, 2, 3))
        table.add_row(
            *(str(row.nodes), str(row.bad), f"{row.exact}/{row.runs}", f"{row.rounds:.2f}"),
            *(str(row.slow), false, f"{row.slow_missed[3]:.2f}"),
        )
    console.print(table)
    console.print(
        f"a fault that shows with 0.8 a test is named: once tested {found[1]:.3f}, three times "
        f"{found[3]:.3f}; bar H1 {'holds' if bar else 'FAILS'}"
    )
    if not really:
        return
    table = Table(title="Real gloo processes on this machine")
    for name in (
        "nodes",
        "killed",
        "throttled",
        "named faulty",
        "named slow (ratio)",
        "links",
        "rounds",
        "wall s",
        "right",
    ):
        table.add_column(name)
    for run in really:
        report = run.report or {}
        table.add_row(
            str(run.nodes),
            "-" if run.dead is None else f"node{run.dead}",
            "-" if run.throttled is None else f"node{run.throttled}",
            ", ".join(report.get("faulty", [])) or "-",
            ", ".join(f"{n} {r:.2f}" for n, r in report.get("slow", {}).items()) or "-",
            ", ".join(report.get("slow_links", {})) or "-",
            str(report.get("rounds", "-")),
            str(run.wall_s),
            "yes" if _right(run) else "NO",
        )
    console.print(table)
