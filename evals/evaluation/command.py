"""The tables of evaluation scheduling, part of `rerail eval forecast`."""

from __future__ import annotations

import numpy as np
from rich.console import Console
from rich.table import Table

from rerail.evals.evaluation.real_makespan import measure
from rerail.evals.evaluation.toy import toy_speedups

BARS = {1: 1.3, 4: 1.8}
SCALES = {1: 1 / 20, 4: 1 / 20}  # so that starting processes does not outweigh the sleep


def evaluation_tables(console: Console, *, quick: bool, real: bool) -> dict[str, bool]:
    """Print planned and measured makespans of the toy, and return which bars hold."""
    bars = {}
    table = Table("nodes", "draws", "one job per set", "SizePartitioner", "plan over bound")
    for nodes, bar in BARS.items():
        found = toy_speedups(60 if quick else 300, nodes)
        jobs = float(np.median(found.over_jobs))
        table.add_row(
            str(nodes), str(len(found.over_jobs)), f"{jobs:.2f} times the plan",
            f"{np.median(found.over_sizes):.2f}", f"{np.median(found.over_bound):.3f}",
        )  # fmt: skip
        bars[f"evaluation toy, {nodes} nodes: {bar} times faster than one job per set"] = (
            jobs >= bar
        )
    console.print("Evaluation of 63 sets, by the planner's clock, medians")
    console.print(table)
    if quick or not real:
        return bars
    table = Table(
        "nodes", "plan s", "expected s", "one job per set s", "SizePartitioner s", "times"
    )
    for nodes, bar in BARS.items():
        one = measure(nodes, SCALES[nodes])
        ratio = one.jobs_s / one.plan_s
        table.add_row(
            str(nodes), f"{one.plan_s:.1f}", f"{one.expected_s:.1f}", f"{one.jobs_s:.1f}",
            f"{one.sizes_s:.1f}", f"{ratio:.2f}, {one.sizes_s / one.plan_s:.2f}",
        )  # fmt: skip
        text = f"evaluation on real local processes, {nodes} nodes: {bar} times faster"
        bars[text] = ratio >= bar and one.complete
    console.print("The same on real local processes, one draw, times scaled down")
    console.print(table)
    return bars
