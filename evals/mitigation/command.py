"""The body of `rerail eval mitigation`: every table, beside its baseline, and the bars M1 and M2."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from rerail.evals.mitigation.episodes import Episodes, episodes
from rerail.evals.mitigation.placements import GRIDS, Recovered, link_recovered, recovered
from rerail.evals.mitigation.real_job import RealJob, run_real_job
from rerail.evals.mitigation.schedule import (
    PAPER_PER_MIN,
    PAPER_RECOVERED,
    Replay,
    replay,
    replay_at,
)
from rerail.evals.mitigation.splits import Exactness, Speed, exactness, speed

LAWS = ("exp 600", "exp 1440", "pareto 1.1")
MILP_UP_TO = 64


def mitigation_command(*, quick: bool, real: bool, json_output: bool) -> int:
    """Measure everything; 0 if both bars hold and the real job kept its loss."""
    small = exactness(100 if quick else 400, 1)
    sizes = [speed(n, 16, 2, with_milp=n <= MILP_UP_TO) for n in (8, 64, 512, 4096)]
    grids = [recovered(grid, 10 if quick else 60, 3) for grid in GRIDS[: 3 if quick else None]]
    phases = [episodes(law, 500 if quick else 20_000, 4) for law in LAWS]
    links = {
        f"{dp}x{pp}, share {share:g}": sum(link_recovered(dp, pp, 16, share, (2, 4, 8))) / 3
        for dp, pp, share in ((4, 4, 0.08), (16, 16, 0.15))
    }
    paper = replay()
    also = [replay_at(link) for link in (0.0, 0.1, 0.25, 0.5, 1.0)]
    job = run_real_job() if real else None
    bars = {
        "M1": _m1(small, sizes),
        "M2": _m2(grids, phases),
        "E11": paper.ours_recovered > PAPER_RECOVERED,
    }
    if json_output:
        content = {
            "bars": bars,
            "exactness": asdict(small),
            "speed": [asdict(one) for one in sizes],
            "placement": [asdict(one) for one in grids],
            "episodes": [asdict(one) for one in phases],
            "links": links,
            "schedule": asdict(paper),
            "schedule_by_link_cost": [asdict(one) for one in also],
            "real_job": None if job is None else asdict(job),
        }
        print(json.dumps(content))
    else:
        _show(small, sizes, grids, phases, links, paper, also, job, bars)
    kept = job is None or job.loss_difference < 1e-9
    return 0 if all(bars.values()) and kept else 1


def _m1(small: Exactness, sizes: list[Speed]) -> bool:
    at_64 = next(one for one in sizes if one.groups == 64)
    return (
        small.mismatches == 0
        and all(one.milp is None or abs(one.milp - one.exact) < 1e-6 * one.exact for one in sizes)
        and at_64.milp_s is not None
        and at_64.milp_s >= 100 * at_64.exact_s
    )


def _m2(grids: list[Recovered], phases: list[Episodes]) -> bool:
    placed = all(
        one.mean["replica+S2"] >= 0.60 and one.mean["replica+S2"] >= one.mean["S2"] for one in grids
    )
    return placed and all(one.ratio_max <= 2.5 and one.ratio_mean <= 1.5 for one in phases)


def _show(
    small: Exactness,
    sizes: list[Speed],
    grids: list[Recovered],
    phases: list[Episodes],
    links: dict[str, float],
    paper: Replay,
    also: list[Replay],
    job: RealJob | None,
    bars: dict[str, bool],
) -> None:
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(
        f"Against all splits: {small.mismatches} of {small.instances} wrong; the variance objective is "
        f"worse in {small.variance_worse}, by up to {small.variance_worst_ratio:.3f}"
    )
    table = Table(title="S2: time to solve, and makespans", title_justify="left")
    for name in (
        "groups",
        "micro-batches",
        "exact ms",
        "MILP ms",
        "exact",
        "MILP",
        "rounding",
        "uniform",
    ):
        table.add_column(name, justify="right")
    for one in sizes:
        table.add_row(
            *(str(one.groups), str(one.total), f"{1e3 * one.exact_s:.3f}"),
            "-" if one.milp_s is None else f"{1e3 * one.milp_s:.1f}",
            f"{one.exact:.3f}",
            "-" if one.milp is None else f"{one.milp:.3f}",
            *(f"{one.rounding:.3f}", f"{one.uniform:.3f}"),
        )
    console.print(table)
    table = Table(
        title="S3: mean share of the slowdown recovered (10th percentile)", title_justify="left"
    )
    for name in ("DP, PP, M", "S2", "same stage", "same stage + S2", "same replica + S2", "moves"):
        table.add_column(name, justify="right")
    for grid in grids:
        cells = [
            f"{grid.mean[n]:.3f} ({grid.tenth[n]:.2f})"
            for n in ("S2", "stage", "stage+S2", "replica+S2")
        ]
        table.add_row(", ".join(map(str, grid.grid)), *cells, f"{grid.moves:.1f}")
    console.print(table)
    for name, value in links.items():
        console.print(f"slow link moved into the pipeline ({name}): recovers {value:.3f}")
    table = Table(
        title="Escalation: share of lost time recovered, costs included", title_justify="left"
    )
    names = list(phases[0].recovered)
    for name in ("length", *names, "ski / clairvoyant mean, p99, max"):
        table.add_column(name, justify="right")
    for phase in phases:
        table.add_row(
            phase.law,
            *(f"{phase.recovered[name]:.3f}" for name in names),
            f"{phase.ratio_mean:.2f} {phase.ratio_p99:.2f} {phase.ratio_max:.2f}",
        )
    console.print(table)
    console.print(
        f"64-GPU schedule, healthy 17.1 it/min: slow {paper.slow_per_min:.2f}, the paper's strategy "
        f"{paper.paper_per_min:.2f} (published {PAPER_PER_MIN}), ours {paper.ours_per_min:.2f}; recovered "
        f"{paper.ours_recovered:.3f} beside {paper.paper_recovered:.3f} (published {PAPER_RECOVERED}); fitted: "
        f"slow GPU {paper.slow_gpu:.2f}, slow link {paper.link_cost:.2f} of it; applied {paper.applied}"
    )
    for case in also:
        console.print(
            f"  a slow link costs {case.link_cost:.2f} of a slow GPU ({case.slow_gpu:.2f} times): recovered "
            f"{case.ours_recovered:.3f}, the paper's strategy {case.paper_recovered:.3f}"
        )
    if job is not None:
        console.print(
            f"real job, 4 processes: healthy {job.healthy_s:.3f} s, slow {job.slow_s:.3f} s, mitigated "
            f"{job.mitigated_s:.3f} s with {job.counts}; recovered {job.recovered:.3f} of at most "
            f"{job.possible:.3f}; largest difference of the loss {job.loss_difference:.1e}"
        )
    console.print("bars: " + ", ".join(f"{n} {'holds' if v else 'FAILS'}" for n, v in bars.items()))
