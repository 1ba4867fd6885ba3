"""`rerail forecast`: what a step and a job should take, and what-ifs; only prints."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rerail.assistant.cli.plot_file import check_folder, check_plot_name, write_page, write_plot
from rerail.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from rerail.domain.series import StepSeries
    from rerail.tools.forecast.forecast import Forecast
    from rerail.tools.forecast.job import JobForecast
    from rerail.tools.forecast.spec import Spec

LogReader = Callable[[Path], "list[StepSeries]"]
_MOST_ROWS = 12


def forecast_command(
    paths: list[Path],
    *,
    json_output: bool = False,
    plot: Path | None = None,
    html: Path | None = None,
    changes: list[str] | None = None,
    observed: Path | None = None,
    samples: int = 20_000,
    seed: int = 0,
    explain: bool = True,
    read_log: LogReader | None = None,
) -> int:
    """Forecast the spec, trace or series, print it, and return the exit code.

    0: forecast; 3: `observed` was given and is not slower than expected; 10: too few observed steps.
    `changes` are what-ifs KEY=VALUE, applied together and shown beside the spec as it is.

    Raises:
        UsageError: no input, a change without "=", or a plot that cannot be written.
        ConfigError: a key of the spec, or a changed one, is wrong.
        EvidenceError: a file is missing, unreadable or cannot be written.
    """
    _needs_scipy()
    from rerail.tools.forecast.forecast import forecast
    from rerail.tools.forecast.sources import read_source

    check_plot_name(plot)
    check_folder(plot, html)
    source = read_source(paths, read_log)
    changed = change_spec(source.spec, changes) if changes else None
    seen = source.measured_s
    if observed is not None:
        seen = read_source([observed], read_log).measured_s
        if seen is None:
            raise UsageError(
                f"{observed} holds no step times",
                subject=str(observed),
                hint="--observed steps.csv",
            )
    found = forecast(
        source.spec, samples=samples, seed=seed, observed_s=seen, explain=explain, note=source.note
    )
    other = None
    if changed is not None:
        other = forecast(changed, samples=samples, seed=seed, observed_s=seen, explain=False)
    _write(found, other, changes or [], plot, html)
    if json_output:
        row = found.to_json()
        row["what_if"] = (
            None if other is None else {"changes": changes, **_without(other.to_json())}
        )
        sys.stdout.write(json.dumps(row, allow_nan=False) + "\n")
    else:
        _print(found, other, changes or [], plot, html)
    if observed is None:
        return 0
    if found.observed is None:
        return 10
    return 0 if found.observed.slower else 3


def _without(row: dict[str, Any]) -> dict[str, Any]:
    return {key: row[key] for key in ("step_time_s", "job", "world_size", "replicas")}


def _needs_scipy() -> None:
    from importlib.util import find_spec

    if find_spec("scipy") is None:
        raise UsageError(
            "a forecast needs scipy, which is not installed",
            subject="scipy",
            hint="pip install 'rerail[forecast]'",
        )


def change_spec(spec: Spec, changes: list[str]) -> Spec:
    """Return the spec with keys changed: `parallel.dp=112`, `pools.gemm.scale=1.1`.

    Raises:
        UsageError: a change has no "=".
        ConfigError: the key is not one of a spec, or the changed spec cannot be.
    """
    import yaml

    from rerail.errors import ConfigError
    from rerail.tools.forecast.spec import parse_spec

    content = spec.model_dump(mode="python", exclude_unset=True)
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals:
            raise UsageError(
                f"--set {change}: KEY=VALUE is expected",
                subject=change,
                hint="--set parallel.dp=112",
            )
        *folders, last = key.strip().split(".")
        at = content
        for folder in folders:
            at = at.setdefault(folder, {})
            if not isinstance(at, dict):
                raise ConfigError(
                    f"--set {key}: {folder} has no keys below it", subject=key,
                    hint="--set parallel.dp=112",
                )  # fmt: skip
        try:
            at[last] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise UsageError(
                f"--set {change}: {value!r} is no YAML value", subject=change,
                hint="--set parallel.dp=112",
            ) from None  # fmt: skip
    return parse_spec(content, "the changed spec")


def _write(
    found: Forecast,
    other: Forecast | None,
    changes: list[str],
    plot: Path | None,
    html: Path | None,
) -> None:
    if plot is not None:
        from rerail.tools.forecast.svg_plot import render as svg

        write_plot(plot, svg(found, other))
    if html is not None:
        from rerail.tools.forecast.page import render as page

        write_page(html, page(found, other, changes))


def _print(
    found: Forecast,
    other: Forecast | None,
    changes: list[str],
    plot: Path | None,
    html: Path | None,
) -> None:
    from rich.console import Console

    from rerail.tools.forecast.terminal_plot import render

    console = Console(highlight=False, soft_wrap=False)
    spec = found.spec
    console.print(
        f"{spec.name}: {found.size()}",
        markup=False,
    )
    _steps(console, found, other, changes)
    console.print(render(found.step, min(100, console.width - 2)), markup=False)
    if found.observed is not None:
        style = "bold red" if found.observed.slower else None
        console.print(f"observed: {found.observed.sentence()}", markup=False, style=style)
    _job(console, found, other)
    _placement(console, found)
    _sensitivity(console, found)
    for note in found.to_json()["notes"]:
        console.print(f"note: {note}", markup=False)
    for what, path in (("plot", plot), ("page", html)):
        if path is not None:
            console.print(f"{what} written to {path}", markup=False)


def _steps(console: Console, found: Forecast, other: Forecast | None, changes: list[str]) -> None:
    from rich.table import Table

    from rerail.tools.durations import digits

    table = Table("step time, s", "mean", "p5", "p50", "p95", "p99", "error of p95")
    rows = [("as given", found)]
    if other is not None:
        console.print(f"what if: {', '.join(changes)}", markup=False)
        rows.append(("what if", other))
    for name, one in rows:
        step = one.step
        cells = [step.step.mean, *(step.percentile(p) for p in (5, 50, 95, 99))]
        table.add_row(name, *(digits(value) for value in cells), f"{step.standard_error_p95_s:.2g}")
    console.print(table)


def _job(console: Console, found: Forecast, other: Forecast | None) -> None:
    from rich.table import Table

    from rerail.tools.durations import long, seconds

    columns = [("as given", found.job), ("what if", other.job if other is not None else None)]
    named = [(name, job) for name, job in columns if job is not None]
    if not named:
        return
    jobs = [job for _, job in named]
    table = Table("job", *(name for name, _ in named))
    rows: list[tuple[str, Callable[[JobForecast], str]]] = [
        ("steps, nodes", lambda job: f"{job.steps:,}, {job.reliability.nodes:,}"),
        ("until the last step: p5", lambda job: long(job.percentile(5))),
        ("p50", lambda job: long(job.percentile(50))),
        ("p95", lambda job: long(job.percentile(95))),
        ("goodput", lambda job: f"{job.goodput:.1%}"),
        ("failures", lambda job: f"{job.failures:,.1f}"),
        ("fails every", lambda job: long(job.reliability.mean_between_s)),
        ("checkpoint every", lambda job: seconds(job.reliability.interval_s)),
        ("the best interval", lambda job: seconds(job.reliability.young_daly_s)),
        ("spare nodes, 99 %", lambda job: str(job.spares)),
    ]
    if any(job.deadline_s is not None for job in jobs):
        rows.append(("misses the deadline", _missed))
    for name, cell in rows:
        table.add_row(name, *(cell(job) for job in jobs))
    console.print(table)


def _missed(job: JobForecast) -> str:
    if job.misses_deadline is None:
        return "-"
    return f"{job.misses_deadline:.1%} +- {job.misses_deadline_error:.1%}"


def _placement(console: Console, found: Forecast) -> None:
    from rich.table import Table

    from rerail.tools.durations import counted, digits
    from rerail.tools.forecast.forecast import placed_row
    from rerail.tools.forecast.placed_steps import PLACEMENT_WORDS

    place, placed = found.placement, found.placed
    if place is None or placed is None:
        return
    console.print(
        f"placement of {counted(len(found.spec.nodes.slow), 'named node')}: {placed.samples:,} pipelines, drawn "
        "alike for all three; last the slowest replica's mean alone, which is what the search compares",
        markup=False,
    )
    table = Table("step time, s", "mean", "p5", "p50", "p95", "p99", "no noise")
    still = {"best": place.best_s, "given": place.given_s, "worst": place.worst_s}
    for name, row in placed_row(placed).items():
        cells = [row[key] for key in ("mean", "p5", "p50", "p95", "p99")]
        table.add_row(PLACEMENT_WORDS[name], *(digits(value) for value in (*cells, still[name])))
    table.add_row("all nodes alike", *[""] * 5, digits(place.healthy_s))
    console.print(table)
    console.print(f"the best saves {placed.saved()}; it puts", markup=False)
    for node, replica, stage in found.moved_nodes():
        console.print(f"  node {node} -> replica {replica}, stage {stage}", markup=False)


def _sensitivity(console: Console, found: Forecast) -> None:
    from rich.table import Table

    if found.sensitivity:
        table = Table("kernels", "change", "p50", "p95")
        for one in found.sensitivity[:_MOST_ROWS]:
            table.add_row(
                one.kernel, one.change, f"{one.p50_change:+.2%}", f"{one.p95_change:+.2%}"
            )
        console.print(table)
    if found.critical:
        parts = [
            f"{one.op}{f' of {one.where}' if one.where else ''}"
            f"{f' ({one.position})' if one.position else ''} {one.share:.1%}"
            for one in found.critical[:5]
        ]
        console.print(f"critical path: {'; '.join(parts)}", markup=False)
