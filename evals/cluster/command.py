"""The bodies of `rerail eval cluster`: run scenarios and show them; start and stop a cluster."""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from rerail.errors import UsageError
from rerail.evals.cluster.bench import Bench, Result, bench
from rerail.evals.cluster.lab import Lab, cannot_run, stop_from
from rerail.evals.cluster.scenarios import SCENARIOS
from rerail.evals.cluster.site import NOT_DEFAULT
from rerail.evals.cluster.trust import TRUST


def run_command(names: list[str], audit: Path | None, json_output: bool) -> int:
    """Run scenarios on a cluster of their own; 0 if all went right.

    Raises:
        UsageError: A scenario has no such name, or the cluster cannot run here.
    """
    every = {**SCENARIOS, **TRUST}
    if names == ["trust"]:
        names = list(TRUST)
    unknown = [name for name in names if name not in every]
    if unknown:
        raise UsageError(
            f"no scenario is called {unknown[0]!r}",
            subject=unknown[0],
            hint="known: trust (all of the second half), " + ", ".join(every),
        )
    if reason := cannot_run():
        raise UsageError(reason, subject="cluster", hint="evals/cluster/install.sh")
    # A polite end has to stop the daemons too.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
    results = []
    with bench() as made:
        for name in names or list(SCENARIOS):
            results.append(_one(made, name))
            print(f"{name}: {'; '.join(results[-1].wrong) or 'right'}", file=sys.stderr, flush=True)
        verified = made.site.rerail("audit", "verify").stdout
        if audit is not None:
            audit.write_text(made.site.rerail("audit", "show", "--limit", "100000").stdout)
    if json_output:
        print(json.dumps({"scenarios": [asdict(one) for one in results], "audit": verified}))
    else:
        _show(results, verified)
    return 1 if any(one.wrong for one in results) else 0


def _one(made: Bench, name: str) -> Result:
    try:
        result = {**SCENARIOS, **TRUST}[name](made)
    except Exception as error:  # one broken scenario must not hide the others
        result = Result(name, [f"{type(error).__name__}: {error}"])
    made.lab.cancel_all()
    for node in made.drained():
        made.repair(node)
    return result


def _show(results: list[Result], verified: str) -> None:
    table = Table(title="Recovery on a real Slurm: seconds after the fault")
    for column in ("scenario", "right", "heard", "runs", "trains", "by hand", "verdict", "did"):
        numeric = column in ("heard", "runs", "trains", "by hand")
        table.add_column(column, justify="right" if numeric else "left")
    for one in results:
        table.add_row(
            one.name,
            "yes" if not one.wrong else "NO",
            *(
                "-" if value is None else f"{value:.1f}"
                for value in (one.heard_s, one.running_s, one.training_s)
            ),
            str(one.manual_steps),
            one.verdict,
            ", ".join(one.did) or "told only",
        )
    settings = ", ".join(f"{key} {value:g}" for key, value in NOT_DEFAULT.items())
    table.caption = (
        f"accounts rerail, svc-rerail-writer, slurm, ann, bob; defaults but for {settings}"
    )
    console = Console(width=None if sys.stdout.isatty() else 170)
    console.print(table)
    for one in results:
        for why in one.wrong:
            console.print(f"{one.name}: {why}", markup=False)
        if one.wrong and one.refused:
            console.print(f"{one.name} refused: {one.refused}", markup=False)
    console.print(
        f"audit log: {verified.splitlines()[0] if verified else 'not read'}", markup=False
    )


def up_command(nodes: int, folder: Path) -> int:
    """Start a cluster that stays up; print what to export."""
    lab = Lab(nodes, root=folder.resolve(), outlives_us=True)
    lab.start()
    print(f"export SLURM_CONF={folder.resolve()}/etc/slurm.conf")
    return 0


def down_command(folder: Path) -> int:
    """Stop a cluster that `up` started."""
    stop_from(folder.resolve())
    return 0
