"""The commands that forecast and plan: step time, job time, evaluation trials."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def forecast(
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="A spec (YAML), an op timeline, Kineto traces of all ranks, or a step series."
        ),
    ],
    json_output: Annotated[
        bool, typer.Option("--json", help="One JSON object on standard output.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Write the distributions as SVG or PNG.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write tables and plots as a page.")] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A what-if: parallel.dp=112; repeat."),
    ] = None,
    observed: Annotated[
        Path | None, typer.Option(help="Step series or log of a run to hold against the forecast.")
    ] = None,
    samples: Annotated[int, typer.Option(min=200, max=1_000_000)] = 20_000,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    explain: Annotated[
        bool, typer.Option(help="Sensitivity, critical path and placement as well.")
    ] = True,
) -> None:
    """Forecast step time and job time with percentiles, and answer what-ifs.

    With --observed: 0 the run is slower than expected; 3 it is not; 10 too few steps to say.
    """
    from rerail.assistant.cli.forecast import forecast_command
    from rerail.assistant.step_logs import read_step_log

    raise typer.Exit(
        forecast_command(
            paths,
            json_output=json_output,
            plot=plot,
            html=html,
            changes=changes,
            observed=observed,
            samples=samples,
            seed=seed,
            explain=explain,
            read_log=read_step_log,
        )
    )


def schedule_eval(
    spec: Annotated[Path, typer.Argument(help="Data sets, model, machines and harness (YAML).")],
    run: Annotated[
        bool, typer.Option("--run", help="Start the trials; without it only the plan is shown.")
    ] = False,
    runner: Annotated[str, typer.Option(help="local, slurm or ray.")] = "local",
    folder: Annotated[
        Path | None, typer.Option(help="Outputs and metrics; a run goes on from what is there.")
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="An option for sbatch: --partition=gpu; repeat.")
    ] = None,
    json_output: Annotated[
        bool, typer.Option("--json", help="One JSON object on standard output.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Write rules and timelines as SVG or PNG.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write tables and timelines as a page.")] = None,
) -> None:
    """Plan model evaluation over GPUs, loading, inference and metrics apart; --run runs it."""
    from rerail.assistant.cli.schedule_eval import schedule_eval_command

    raise typer.Exit(
        schedule_eval_command(
            spec,
            run=run,
            runner=runner,
            folder=folder,
            options=option,
            json_output=json_output,
            plot=plot,
            html=html,
        )
    )


COMMANDS = (forecast, schedule_eval)
