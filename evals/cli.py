"""`rerail eval`: measure the product. Installed as a plug-in command; the product imports none of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Measure rerail on labelled evidence.", no_args_is_help=True, rich_markup_mode=None
)


@app.command("cases")
def cases(
    file: Annotated[Path, typer.Argument(help="JSON lines of labelled cases.")],
    rewrites: Annotated[bool, typer.Option(help="Score rewritten texts as well.")] = True,
    seed: Annotated[int, typer.Option(help="Seed of the rewriting.")] = 1,
    json_output: Annotated[bool, typer.Option("--json")] = False,
    failures: Annotated[bool, typer.Option(help="Say what was wrong in each case.")] = False,
) -> None:
    """Score labelled cases beside keyword baselines, and under rewriting."""
    from rerail.evals.cases.command import cases_command

    raise typer.Exit(
        cases_command(
            file, rewrites=rewrites, seed=seed, json_output=json_output, failures=failures
        )
    )


@app.command("ablation")
def ablation(
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="JSON lines of labelled cases; the project's own if none."),
    ] = None,
    tests: Annotated[
        bool, typer.Option(help="In a checkout: with the texts of its tests of the knowledge base.")
    ] = False,
    only: Annotated[str, typer.Option(help="Parts whose kind or name holds this.")] = "",
    json_output: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Switch off each part of the reasoning and print which cases notice."""
    from rerail.evals.ablation.command import ablation_command
    from rerail.evals.cases.kept import KEPT

    raise typer.Exit(
        ablation_command(files or KEPT, only=only, tests=tests, json_output=json_output)
    )


@app.command("logs")
def logs(
    folder: Annotated[Path, typer.Argument(help="Folder with log files and index.json.")],
    json_output: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Score whole log files that an index labels."""
    from rerail.evals.cases.logs import logs_command

    raise typer.Exit(logs_command(folder, json_output=json_output))


@app.command("faultlab")
def faultlab(
    scenario: Annotated[
        list[str] | None, typer.Option(help="A scenario; repeat for several.")
    ] = None,
    keep: Annotated[Path | None, typer.Option(help="Folder that keeps the runs.")] = None,
    recorded: Annotated[Path | None, typer.Option(help="Score recorded runs instead.")] = None,
    json_output: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Run real torch.distributed jobs that fail, and score the diagnosis of their logs."""
    from rerail.evals.faultlab.command import faultlab_command

    raise typer.Exit(faultlab_command(scenario or [], keep, recorded, json_output))


@app.command("launchers")
def launchers(
    only: Annotated[
        list[str] | None, typer.Argument(help="Launchers and faults; all without any.")
    ] = None,
    recorded: Annotated[Path, typer.Option(help="Folder with the recorded runs.")] = Path(
        "tests/data/launchers"
    ),
    remake: Annotated[
        bool, typer.Option("--remake", help="Run the faults anew (root) and record them.")
    ] = False,
    environment: Annotated[
        Path,
        typer.Option(
            help="Folder with the environments of the launchers; what is missing is made."
        ),
    ] = Path(".venv-launchers"),
    json_output: Annotated[bool, typer.Option("--json")] = False,
    failures: Annotated[bool, typer.Option(help="Say what was wrong in each run.")] = False,
) -> None:
    """Score the same faults under launchers and frameworks that really ran, beside simpler ways."""
    from rerail.evals.launchers.command import launchers_command
    from rerail.evals.launchers.command import remake as make_anew

    if remake:
        make_anew(only or [], recorded, environment)
    raise typer.Exit(
        launchers_command(recorded, only or [], json_output=json_output, failures=failures)
    )


@app.command("patterns")
def patterns(
    only: Annotated[str, typer.Option(help="Cases whose name holds this.")] = "",
    seed: Annotated[int, typer.Option(help="Another seed gives other workers and noise.")] = 1,
    scale: Annotated[bool, typer.Option(help="Measure many workers and large traces, too.")] = True,
    real: Annotated[bool, typer.Option(help="Run real jobs over gloo, too.")] = True,
    json_output: Annotated[bool, typer.Option("--json")] = False,
    failures: Annotated[bool, typer.Option(help="Say what was wrong in each case.")] = False,
) -> None:
    """Score which function and workers are named on simulated slow jobs, beside simpler rules."""
    from rerail.evals.patterns.command import patterns_command

    raise typer.Exit(patterns_command(only, seed, scale, real, json_output, failures))


@app.command("fleet")
def fleet(
    years: Annotated[int, typer.Option(min=1, help="Simulated years of each kind.")] = 20,
    seed: Annotated[int, typer.Option(help="The first year's; each has its own.")] = 1,
    json_output: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Hold the statistics of `rerail report` against simulated years of 1,000 nodes, with bad ones and without."""
    from rerail.evals.fleet.command import fleet_command

    raise typer.Exit(fleet_command(years, seed, json_output=json_output))


@app.command("soak")
def soak(
    count: Annotated[int, typer.Option(help="How many damaged jobs.")] = 10_000,
    jobs: Annotated[Path, typer.Option(help="A folder of recorded jobs.")] = Path(
        "tests/data/faultlab"
    ),
    seed: Annotated[int, typer.Option(help="The same seed gives the same damages.")] = 1,
) -> None:
    """Damage recorded jobs at random and diagnose them: nothing may shake the reader."""
    from rerail.evals.soak.run import soak_command

    raise typer.Exit(soak_command(jobs, count, seed))


@app.command("detectors")
def detectors(
    cases: Annotated[Path | None, typer.Option(help="Folder with dev.jsonl and mlperf/.")] = None,
    seed: Annotated[int, typer.Option()] = 50_000,
    quick: Annotated[bool, typer.Option(help="A tenth of it.")] = False,
    only: Annotated[
        str,
        typer.Option(
            help="One table: steps, healthy, falcon, loss, cost, logs, periods, places, gloo, "
            "replay."
        ),
    ] = "",
    trace: Annotated[
        Path | None, typer.Option(help="An op-level timeline (Parquet) for the replay table.")
    ] = None,
) -> None:
    """Score the numeric detectors beside published methods."""
    from rerail.evals.detectors.command import detectors_command

    raise typer.Exit(detectors_command(seed=seed, quick=quick, cases=cases, only=only, trace=trace))


@app.command("agent")
def agent(
    url: Annotated[str, typer.Option("--model", help="Base URL of the endpoint.")] = "",
    name: Annotated[str, typer.Option(help="The model's name there.")] = "model",
    cases: Annotated[Path | None, typer.Option(help="JSON lines of labelled cases.")] = None,
    recorded: Annotated[
        Path | None, typer.Option(help="Folder of recorded fault-lab runs.")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="A run of the fault lab; repeat.")] = None,
    most: Annotated[int | None, typer.Option(help="Most labelled cases.")] = None,
    iterations: Annotated[int, typer.Option(help="How often each case is asked.")] = 1,
    blind: Annotated[bool, typer.Option(help="Hide the rules' verdict from the model.")] = False,
    record: Annotated[Path | None, typer.Option(help="Keep the answers in this file.")] = None,
    replay: Annotated[Path | None, typer.Option(help="Score a recorded run instead.")] = None,
    turns: Annotated[int, typer.Option(help="Most requests for one sample.")] = 8,
    json_output: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Score a model endpoint beside the rules alone."""
    from rerail.evals.agent.command import agent_command

    raise typer.Exit(
        agent_command(
            url=url,
            name=name,
            cases=cases,
            recorded=recorded,
            only=only or [],
            most=most,
            iterations=iterations,
            blind=blind,
            record=record,
            replay=replay,
            turns=turns,
            json_output=json_output,
        )
    )


@app.command("retrieval")
def retrieval(
    cases: Annotated[Path | None, typer.Option(help="JSON lines of labelled cases.")] = None,
    recorded: Annotated[
        Path | None, typer.Option(help="Folder of recorded fault-lab runs.")
    ] = None,
    boosts: Annotated[bool, typer.Option(help="Let fingerprint and cluster count.")] = False,
    held_out: Annotated[
        Path | None, typer.Option(help="Labelled cases that chose nothing here.")
    ] = None,
    json_output: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Score how well a failure is found again: words, vectors, both."""
    from rerail.evals.retrieval.command import retrieval_command

    raise typer.Exit(
        retrieval_command(
            cases, recorded, boosts=boosts, json_output=json_output, held_out=held_out
        )
    )


@app.command("attacks")
def attacks(
    only: Annotated[str, typer.Option(help="Only attacks with this in their name.")] = "",
    json_output: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Attack honest failures through their logs, with a model that obeys the attacker."""
    from rerail.evals.attacks.command import attacks_command

    raise typer.Exit(attacks_command(only=only, json_output=json_output))


@app.command("learning")
def learning(
    seed: Annotated[int, typer.Option(help="Seed of the year.")] = 1,
    incidents: Annotated[int, typer.Option(help="Incidents in the year.")] = 300,
    json_output: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Replay a synthetic year: what learned rules add, and whether precision holds."""
    from rerail.evals.learning.command import learning_command

    raise typer.Exit(learning_command(seed=seed, incidents=incidents, json_output=json_output))


@app.command("bench")
def bench(
    name: Annotated[
        list[str] | None, typer.Argument(help="Benchmarks to run; none for all.")
    ] = None,
    size_gb: Annotated[float, typer.Option(help="Size of the generated log.")] = 1.2,
    data: Annotated[Path, typer.Option(help="Folder for generated logs.")] = Path("bench-data"),
    json_output: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Measure speed and memory as ratios against named baselines of the same run."""
    from rerail.evals.bench.command import bench_command

    raise typer.Exit(bench_command(name or [], size_gb, data, json_output))


@app.command("health")
def health(
    runs: Annotated[int, typer.Option(help="Draws for each size.")] = 100,
    real: Annotated[bool, typer.Option(help="Run real processes as well.")] = True,
    json_output: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Score the health tests on simulated clusters and on real processes that are spoiled."""
    from rerail.evals.health.command import health_command

    raise typer.Exit(health_command(runs, real=real, json_output=json_output))


@app.command("mitigation")
def mitigation(
    quick: Annotated[bool, typer.Option(help="A tenth of it.")] = False,
    real: Annotated[bool, typer.Option(help="Run real processes as well.")] = True,
    json_output: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Score fail-slow mitigation: splits, placement, escalation, a published schedule, a real job."""
    from rerail.evals.mitigation.command import mitigation_command

    raise typer.Exit(mitigation_command(quick=quick, real=real, json_output=json_output))


@app.command("forecast")
def forecast(
    only: Annotated[
        str,
        typer.Option(
            help="One table: reference, brute, scale, trace, real, placement, goodput, evaluation."
        ),
    ] = "",
    quick: Annotated[bool, typer.Option(help="Fewer draws and steps.")] = False,
    real: Annotated[bool, typer.Option(help="Run real processes as well.")] = True,
) -> None:
    """Score the step-time model: reference numbers, brute force, real processes, placement, goodput."""
    from rerail.evals.forecast.command import forecast_eval_command

    raise typer.Exit(forecast_eval_command(only, quick=quick, real=real))


@app.command("storm")
def storm(
    events: Annotated[int, typer.Option(help="How many failures.")] = 1000,
    json_output: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Send a thousand failures at once, kill the daemon, and count what came out."""
    from rerail.evals.cluster.storm import storm_command

    raise typer.Exit(storm_command(events, json_output))


@app.command("load")
def load(
    seconds: Annotated[
        float, typer.Option(min=1, help="Seconds for hooks, and for webhooks.")
    ] = 60,
    json_output: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Measure hooks at a thousand a minute and webhooks at a hundred a second."""
    from rerail.evals.cluster.load import load_command

    raise typer.Exit(load_command(seconds, json_output))


cluster = typer.Typer(help="Recovery on a real Slurm on this machine.", no_args_is_help=True)
app.add_typer(cluster, name="cluster")


@cluster.command("run")
def cluster_run(
    scenario: Annotated[
        list[str] | None, typer.Argument(help="Scenarios to run; none for all.")
    ] = None,
    audit: Annotated[Path | None, typer.Option(help="Write the audit log to this file.")] = None,
    json_output: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Start a cluster, let real jobs fail in every way, and judge the recovery."""
    from rerail.evals.cluster.command import run_command

    raise typer.Exit(run_command(scenario or [], audit, json_output))


@cluster.command("up")
def cluster_up(
    folder: Annotated[Path, typer.Argument(help="A new folder for its state.")],
    nodes: Annotated[int, typer.Option(help="How many nodes.")] = 4,
) -> None:
    """Start a cluster and leave it running."""
    from rerail.evals.cluster.command import up_command

    raise typer.Exit(up_command(nodes, folder))


@cluster.command("down")
def cluster_down(folder: Annotated[Path, typer.Argument(help="The folder given to `up`.")]) -> None:
    """Stop a cluster and remove its folder."""
    from rerail.evals.cluster.command import down_command

    raise typer.Exit(down_command(folder))
