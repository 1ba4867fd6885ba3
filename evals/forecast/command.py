"""`rerail eval forecast`: the forecast beside reference numbers, brute force and real processes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from rerail.errors import UsageError
from rerail.evals.detectors.gloo_jobs import torch_missing
from rerail.evals.evaluation.command import evaluation_tables
from rerail.evals.forecast.brute import agreement, cases
from rerail.evals.forecast.goodput_table import PUBLISHED, goodput_table
from rerail.evals.forecast.not_run import NotRun
from rerail.evals.forecast.placement_check import PAPER_RANGE, exhaustive, paper_setting
from rerail.evals.forecast.real_job import real_validation
from rerail.evals.forecast.reference import invariants, reference_checks
from rerail.tools.forecast.from_trace import spec_from_timeline
from rerail.tools.forecast.spec import parse_spec
from rerail.tools.forecast.step import StepModel

TABLES = ("reference", "brute", "scale", "trace", "real", "placement", "goodput", "evaluation")
_TRACE = Path("tests/data/straggler_ar/trace-AR.parquet")


def forecast_eval_command(only: str = "", *, quick: bool = False, real: bool = True) -> int:
    """Print the tables and return 0 where every bar that was asked for ran and holds, else 1.

    Bars of real processes that `real` or `quick` leave out are told as not run.

    Raises:
        UsageError: there is no table of the name `only`.
    """
    if only and only not in TABLES:
        raise UsageError(
            f"--only {only}: there is no such table; there are {', '.join(TABLES)}",
            subject=only, hint=f"rerail eval forecast --only {TABLES[0]}",
        )  # fmt: skip
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    makers: dict[str, Callable[[], Mapping[str, bool | NotRun]]] = {
        "reference": lambda: _reference(console),
        "brute": lambda: _brute(console, quick),
        "scale": lambda: _scale(console),
        "trace": lambda: _trace(console),
        "real": lambda: _real(console, quick, real),
        "placement": lambda: _placement(console, quick),
        "goodput": lambda: _goodput(console),
        "evaluation": lambda: evaluation_tables(console, quick=quick, real=real),
    }
    bars: dict[str, bool | NotRun] = {}
    for name in TABLES:
        if not only or name == only:
            bars |= makers[name]()
    for text, holds in bars.items():
        said = (
            f"not run ({holds.why})" if isinstance(holds, NotRun) else "holds" if holds else "FAILS"
        )
        console.print(f"{said}: {text}", markup=False)
    return 0 if all(bars.values()) else 1


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right", no_wrap=i > 0)
    return table


def _reference(console: Console) -> dict[str, bool]:
    checks = reference_checks()
    table = _table("Reference numbers", "number", "found", "expected", "allowed")
    for one in checks:
        style = None if one.holds else "bold red"
        table.add_row(
            one.what, f"{one.found:.4f}", f"{one.expected:.4f}", f"{one.tolerance:.4f}", style=style
        )
    console.print(table)
    right = sum(one.holds for one in checks)
    return {f"{right} of {len(checks)} reference numbers": right == len(checks), **invariants()}


def _brute(console: Console, quick: bool) -> dict[str, bool]:
    table = _table(
        "Brute force: every rank, layer and replica drawn", "case", "KS", "bar", "mean", "p95",
        "brute steps", "draws, brute / forecast",
    )  # fmt: skip
    found = [agreement(*case) for case in cases(quick)]
    for one in found:
        table.add_row(
            one.case, f"{one.ks:.3f}", f"{one.bar:.2f}", f"{one.mean_error:+.3%}",
            f"{one.p95_error:+.3%}", str(one.brute),
            f"{one.brute_draws / one.brute * 20_000 / one.forecast_draws:.0f}",
        )  # fmt: skip
    console.print(table)
    return {f"R1, {one.case}": one.holds for one in found}


SCALE = {
    "name": "65,536 GPUs",
    "parallel": {"tp": 8, "pp": 16, "dp": 512},
    "schedule": {"micro_batches": 64},
    "layers_per_stage": 6,
    "pools": {
        "f": {"mean_s": 0.004, "cv": 0.03},
        "b": {"mean_s": 0.008, "cv": 0.03},
        "all_reduce": {"distribution": "lognormal", "mean_s": 0.0004, "cv": 0.1, "group": "tp"},
        "send": {"distribution": "lognormal", "mean_s": 0.0003, "cv": 0.2},
        "reduce": {"distribution": "lognormal", "mean_s": 0.2, "cv": 0.05, "group": "dp"},
    },
    "passes": {"forward": ["f", "all_reduce"], "backward": ["b", "all_reduce"]},
    "transfer": "send",
    "step": ["reduce"],
}


def _scale(console: Console) -> dict[str, bool]:
    spec = parse_spec(SCALE)
    StepModel(spec).forecast(200)
    begin, used = time.perf_counter(), time.process_time()
    model = StepModel(spec)
    found = model.forecast(20_000)
    wall, cpu = time.perf_counter() - begin, time.process_time() - used
    begin = time.perf_counter()
    rng = np.random.default_rng(1)
    for _ in range(len(model.program.nodes)):
        rng.standard_normal(20_000, dtype=np.float32)
    normals = time.perf_counter() - begin
    console.print(
        f"65,536 GPUs (8 TP x 16 PP x 512 DP, 64 micro-batches), 20,000 pipelines: {wall:.2f} s, "
        f"{cpu:.2f} s of CPU; p95 {found.percentile(95):.4f} s +- {found.standard_error_p95_s:.5f} s; "
        f"drawing as many normal numbers alone takes {normals:.2f} s",
        markup=False,
    )
    return {"65,536 GPUs cost at most 3 times their normal numbers": wall <= 3 * normals}


def _trace(console: Console) -> dict[str, bool | NotRun]:
    text = "real 64-GPU trace: p95 within 4 %"
    if not _TRACE.is_file():
        return {text: NotRun(f"there is no {_TRACE}; run it in a checkout")}
    _, measured = spec_from_timeline(_TRACE)
    count = len(measured)
    spec, _ = spec_from_timeline(_TRACE, range(0, count, 2))
    found = StepModel(spec).forecast(4000, errors=False)
    other = measured[1::2]
    error = {p: found.percentile(p) / float(np.percentile(other, p)) - 1 for p in (5, 50, 95)}
    console.print(
        f"real 64-GPU job with a slow worker, fitted on {count - len(other)} of {count} steps, held "
        f"against the others: p5 {error[5]:+.2%}, p50 {error[50]:+.2%}, p95 {error[95]:+.2%}",
        markup=False,
    )
    return {text: abs(error[95]) <= 0.04}


def _real(console: Console, quick: bool, real: bool) -> dict[str, bool | NotRun]:
    near, alike = "real job: p95 within 4 % in every run", "real job: KS below 0.1 in every run"
    reason = torch_missing()
    if reason or not real:
        left_out = NotRun(reason or "--no-real", wanted=real)
        return {near: left_out, alike: left_out}
    runs = [real_validation(400 if quick else 1200, seed) for seed in range(1, 2 if quick else 4)]
    table = _table(
        "Real gloo job, 4 processes, random delays: fitted on one half of the steps", "run", "steps",
        "p50 s", "p50 error", "p95 error", "KS", "KS of the halves",
    )  # fmt: skip
    for number, one in enumerate(runs, 1):
        table.add_row(
            str(number), str(one.steps), f"{one.p50_s:.4f}", f"{one.p50_error:+.2%}",
            f"{one.p95_error:+.2%}", f"{one.ks:.3f}", f"{one.between_halves:.3f}",
        )  # fmt: skip
    console.print(table)
    console.print("PRISM reports 4.3 to 5.4 % for p95, and KS 20.8 % in its first version")
    return {
        near: all(abs(one.p95_error) <= 0.04 for one in runs),
        alike: all(one.ks < 0.1 for one in runs),
    }


def _placement(console: Console, quick: bool) -> dict[str, bool]:
    every = exhaustive(5 if quick else 20)
    console.print(
        f"placement search against all placements: best missed in {every.missed} of {every.jobs} jobs, "
        f"{every.evaluated_share:.1%} of the replicas evaluated",
        markup=False,
    )
    paper = paper_setting()
    console.print(
        f"one node x1.3 among 16 stages: best {paper.best_s:.1f}, worst {paper.worst_s:.1f}, without it "
        f"{paper.healthy_s:.1f}: {paper.best_to_worst:.3f} times between placements (PRISM: up to "
        f"{PAPER_RANGE})",
        markup=False,
    )
    return {
        "placement equals exhaustive search": every.missed == 0,
        "placement range of the paper's kind of setting: 1.2 to 1.3": (
            1.2 <= paper.best_to_worst <= 1.3
        ),
    }


def _goodput(console: Console) -> dict[str, bool]:
    rows = goodput_table()
    table = _table(
        "Llama 3 405B: 16,384 GPUs, 419 interruptions in 54 days, Young-Daly interval",
        "checkpoint s", "restart s", "interval min", "formula", "drawn", "stepped", "failures in 54 d",
        "above 90 %",
    )  # fmt: skip
    for one in rows:
        table.add_row(
            f"{one.checkpoint_s:g}", f"{one.restart_s:g}", f"{one.interval_s / 60:.1f}",
            f"{one.formula:.4f}", f"{one.drawn:.4f}", f"{one.stepped:.4f}",
            f"{one.failures_54_days:.0f}", "yes" if one.formula > PUBLISHED else "no",
        )  # fmt: skip
    console.print(table)
    apart = max(abs(one.formula - other) for one in rows for other in (one.drawn, one.stepped))
    fast = [one for one in rows if one.checkpoint_s <= 10 and one.restart_s <= 300]
    return {
        "goodput: formula, drawn and stepped runs agree within 0.005": apart <= 0.005,
        "goodput: above the published 90 % with asynchronous checkpoints and restarts of 5 min": all(
            one.formula > PUBLISHED for one in fast
        ),
    }
