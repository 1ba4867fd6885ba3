"""`rerail schedule-eval`: plan evaluation trials, and with --run run them; only prints and asks."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rerail.assistant.cli.plot_file import check_folder, check_plot_name, write_page, write_plot
from rerail.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from rerail.recovery.evaluation.coordinator import Outcome
    from rerail.recovery.evaluation.runner import Runner
    from rerail.tools.evaluation.plan import Plan
    from rerail.tools.evaluation.rows import Report
    from rerail.tools.evaluation.spec import EvaluationSpec

RUNNERS = ("local", "slurm", "ray")
_MOST_GPUS = 16
_WIDTH = 64


def schedule_eval_command(
    spec_file: Path,
    *,
    run: bool = False,
    runner: str = "local",
    folder: Path | None = None,
    options: list[str] | None = None,
    json_output: bool = False,
    plot: Path | None = None,
    html: Path | None = None,
) -> int:
    """Print the plan beside two other rules; with `run`, run it and print the metrics.

    0: planned, or run with all metrics; 1: sets were given up.

    Raises:
        UsageError: an unknown runner, a run without a harness or folder, or a plot that cannot be written.
        ConfigError: a key of the spec is wrong.
        ClusterError: the scheduler refuses or no node can be used.
    """
    from rerail.tools.evaluation.baselines import one_job_per_set, size_partitioned
    from rerail.tools.evaluation.plan import plan_evaluation
    from rerail.tools.evaluation.spec import read_evaluation

    if runner not in RUNNERS:
        raise UsageError(
            f"--runner {runner!r}", subject=runner, hint=f"one of {', '.join(RUNNERS)}"
        )
    check_plot_name(plot)
    check_folder(plot, html)
    spec = read_evaluation(spec_file)
    plan = plan_evaluation(spec)
    others = {
        "one job per data set": one_job_per_set(spec),
        "OpenCompass SizePartitioner": size_partitioned(spec)[0],
    }
    outcome = None
    if run:
        outcome = _run(spec, runner, folder, options or [], quiet=json_output)
    if plot is not None or html is not None:
        _write(_report(spec_file.stem, spec, plan, others, outcome), outcome, plot, html)
    if json_output:
        sys.stdout.write(json.dumps(_json(plan, others, outcome), allow_nan=False) + "\n")
    else:
        _print(spec, plan, others, outcome)
        for what, path in (("plot", plot), ("page", html)):
            if path is not None:
                print(f"{what} written to {path}")
    return 1 if outcome is not None and outcome.failed else 0


def _run(
    spec: EvaluationSpec, runner: str, folder: Path | None, options: list[str], quiet: bool
) -> Outcome:
    from rerail.recovery.evaluation.coordinator import Coordinator

    if spec.harness is None:
        raise UsageError(
            "harness: nothing says how to evaluate",
            subject="harness",
            hint="see docs/evaluation.md",
        )
    if folder is None:
        raise UsageError(
            "--run needs a folder for outputs and metrics that all nodes see", subject="--folder",
            hint="rerail schedule-eval spec.yaml --run --folder /shared/eval-1",
        )  # fmt: skip
    say = (lambda text: None) if quiet else (lambda text: print(text, flush=True))
    return Coordinator(spec, _runner(spec, runner, options), folder, say).run()


def _report(
    name: str, spec: EvaluationSpec, plan: Plan, others: dict[str, float], outcome: Outcome | None
) -> Report:
    from rerail.tools.evaluation.rows import Report, planned, ran

    rules = {"this plan": plan.makespan_s, **others, "no plan can be faster than": plan.bound_s}
    timelines = [planned(spec, plan)]
    if outcome is not None:
        rules = {"this plan, as it ran": outcome.makespan_s, **rules}
        timelines.append(ran([(t.kind, t.name, t.begin_s, t.end_s) for t in outcome.ran]))
    return Report(name, spec, plan, rules, tuple(timelines))


def _write(report: Report, outcome: Outcome | None, plot: Path | None, html: Path | None) -> None:
    from rerail.tools.evaluation.page import render as page
    from rerail.tools.evaluation.svg_plot import render as svg

    if plot is not None:
        write_plot(plot, svg(report))
    if html is not None:
        write_page(html, page(report, None if outcome is None else outcome.to_json()))


def _runner(spec: EvaluationSpec, name: str, options: list[str]) -> Runner:
    if name == "slurm":
        from rerail.recovery.evaluation.slurm_runner import SlurmRunner

        return SlurmRunner(options)
    if options:
        raise UsageError(
            f"--option {options[0]}: only Slurm takes options",
            subject=options[0],
            hint="--runner slurm",
        )
    if name == "ray":
        from rerail.recovery.evaluation.ray_runner import RayRunner

        return RayRunner()
    from rerail.recovery.evaluation.local_runner import LocalRunner

    return LocalRunner(spec.gpus)


def _json(plan: Plan, others: dict[str, float], outcome: Outcome | None) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "makespan_s": plan.makespan_s,
        "bound_s": plan.bound_s,
        "others_s": others,
        "trials": [
            [{"dataset": p.dataset, "first": p.first, "last": p.last, "seconds": p.seconds}
             for p in trial.pieces]
            for trial in plan.trials
        ],
        "run": None if outcome is None else outcome.to_json(),
    }  # fmt: skip


def _print(
    spec: EvaluationSpec, plan: Plan, others: dict[str, float], outcome: Outcome | None
) -> None:
    from rich.console import Console
    from rich.table import Table

    from rerail.tools.durations import seconds
    from rerail.tools.evaluation.rows import plan_size

    console = Console(highlight=False, soft_wrap=False)
    console.print(plan_size(spec, plan), markup=False)
    table = Table("rule", "expected until the last metric", "times the plan")
    table.add_row("this plan", seconds(plan.makespan_s), "1.00")
    for name, value in others.items():
        table.add_row(name, seconds(value), f"{value / max(plan.makespan_s, 1e-9):.2f}")
    table.add_row("no plan can be faster than", seconds(plan.bound_s), "")
    console.print(table)
    _timeline(console, spec, plan)
    if outcome is None:
        console.print("dry run: nothing was started; --run --folder FOLDER starts it", markup=False)
        return
    _metrics(console, outcome)


def _timeline(console: Console, spec: EvaluationSpec, plan: Plan) -> None:
    whole = max(plan.makespan_s, 1e-9)
    for gpu in range(min(spec.gpus, _MOST_GPUS)):
        row = [" "] * _WIDTH
        pieces = [one for one in plan.slots if one.kind == "inference" and one.place == gpu]
        for number, one in enumerate(pieces):
            first = int(one.begin_s / whole * _WIDTH)
            for at in range(first, max(first + 1, int(one.end_s / whole * _WIDTH))):
                row[min(at, _WIDTH - 1)] = "#="[number % 2]
        console.print(f"GPU {gpu:3} |{''.join(row)}|", markup=False)
    if spec.gpus > _MOST_GPUS:
        console.print(f"and {spec.gpus - _MOST_GPUS} more GPUs", markup=False)


def _metrics(console: Console, outcome: Outcome) -> None:
    from rich.table import Table

    from rerail.tools.durations import seconds

    table = Table("data set", "metrics")
    for name, values in sorted(outcome.metrics.items()):
        table.add_row(name, ", ".join(f"{key} {value:.4g}" for key, value in values.items()))
    for name, reason in sorted(outcome.failed.items()):
        table.add_row(name, f"given up: {reason}", style="bold red")
    console.print(table)
    console.print(
        f"took {seconds(outcome.makespan_s)} ({seconds(outcome.expected_s)} expected), "
        f"{outcome.tasks} tasks, {outcome.retried} repeated",
        markup=False,
    )
    for told in outcome.outages:
        console.print(f"outage: {told}", markup=False)
    for why in outcome.replanned:
        console.print(f"planned anew: {why}", markup=False)
