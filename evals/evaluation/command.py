"""The tables of evaluation scheduling, part of `rerail eval forecast`."""

from __future__ import annotations

import numpy as np
from rich.console import Console
from rich.table import Table

from rerail.evals.evaluation.real_makespan import measure
from rerail.evals.evaluation.toy import toy, toy_speedups
from rerail.evals.forecast.not_run import NotRun

BARS = {1: 1.3, 4: 1.8}
SCALES = {1: 1 / 30, 4: 1 / 20}  # so that starting processes does not outweigh the sleep


def evaluation_tables(console: Console, *, quick: bool, real: bool) -> dict[str, bool | NotRun]:
    """Print planned and measured makespans of the toy, and return which bars hold.

    Real processes run the one draw whose planned gain lies nearest the median of all draws.
    """
    bars: dict[str, bool | NotRun] = {}
    typical = {}
    table = Table("nodes", "draws", "one job per set", "SizePartitioner", "plan over bound")
    for nodes, bar in BARS.items():
        found = toy_speedups(60 if quick else 300, nodes)
        jobs = float(np.median(found.over_jobs))
        typical[nodes] = int(np.abs(np.array(found.over_jobs) - jobs).argmin())
        table.add_row(
            str(nodes), str(len(found.over_jobs)), f"{jobs:.2f} times the plan",
            f"{np.median(found.over_sizes):.2f}", f"{np.median(found.over_bound):.3f}",
        )  # fmt: skip
        bars[f"evaluation toy, {nodes} nodes: {bar} times faster than one job per set"] = (
            jobs >= bar
        )
    console.print("Evaluation of 63 sets, by the planner's clock, medians")
    console.print(table)
    on_processes = {
        nodes: f"evaluation on real local processes, {nodes} nodes: {bar} times faster"
        for nodes, bar in BARS.items()
    }
    if quick or not real:
        why = NotRun("--no-real" if not real else "--quick", wanted=False)
        return bars | dict.fromkeys(on_processes.values(), why)
    table = Table("nodes, draw", "rule", "measured s", "by the planner's clock s", "times the plan")
    for nodes, bar in BARS.items():
        one = measure(toy(typical[nodes], nodes, SCALES[nodes]))
        rows = (
            (f"{nodes}, draw {typical[nodes]}", "plan", one.plan_s, one.expected_plan_s),
            ("", "one job per set", one.jobs_s, one.expected_jobs_s),
            ("", "SizePartitioner", one.sizes_s, one.expected_sizes_s),
        )
        for place, rule, seconds, expected in rows:
            table.add_row(
                place, rule, f"{seconds:.1f}", f"{expected:.1f}", f"{seconds / one.plan_s:.2f}"
            )
        bars[on_processes[nodes]] = one.jobs_s >= bar * one.plan_s and one.complete
    console.print("The same on real local processes, the draw of median gain, times scaled down")
    console.print(table)
    return bars
