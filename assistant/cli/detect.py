"""`rerail detect`: judge step series from CSV, Parquet or logs, with tables and plots.

Only prints; the judgement is `rerail.tools.detectors.detect.detect`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rerail.assistant.cli.plot_file import check_plot_name, write_plot
from rerail.assistant.read_steps import LogReader, read_steps
from rerail.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from rerail.domain.series import StepSeries
    from rerail.tools.detectors.events import SeriesReport

_MOST_PLOTS = 4
_MOST_ROWS = 40
_FAULTS = {"fail_slow", "loss_divergence", "nan", "hang", "worse_than_baseline"}
_STYLE = {"healthy": "green", "insufficient": "yellow"}


def detect_command(
    paths: list[Path],
    json_output: bool = False,
    plot: Path | None = None,
    *,
    no_color: bool = False,
    seen_until: float | None = None,
    read_log: LogReader | None = None,
    expected: Path | None = None,
    baselines: Sequence[Path] = (),
) -> int:
    """Judge every series of the files, print the findings, and return the exit code.

    0: a fault was found, 3: none, 10: too few steps to say (as `rerail diagnose`). `read_log`
    reads the steps of a file that is no table. `plot` takes an SVG file name. `expected` is a forecast
    (JSON or spec): with it a run that is slow from its first step is seen. `baselines` are good runs of
    the same job, in any form that is read: level of the loss, step time and learning rate are compared.

    Raises:
        UsageError: no path was given, or the plot can be written neither as SVG nor as PNG.
        EvidenceError: a file cannot be read.
    """
    from rerail.tools.detectors.detect import detect

    if not paths:
        raise UsageError("no file was given", hint="rerail detect steps.csv")
    check_plot_name(plot)
    series = [item for path in paths for item in read_steps(path, read_log)]
    pairs = [(item, detect(item, seen_until=seen_until)) for item in series]
    if expected is not None:
        pairs = _against(pairs, expected)
    if baselines:
        pairs = _beside(pairs, baselines, read_log)
    if plot is not None:
        _write_plot(plot, pairs)
    if json_output:
        sys.stdout.write(report_json(pairs) + "\n")
    else:
        _print(pairs, plot, no_color)
    outcomes = {str(report.outcome) for _, report in pairs}
    if outcomes & _FAULTS:
        return 0
    if baselines and not any(_is_known(report) for _, report in pairs):
        return 10
    return 3 if "healthy" in outcomes else 10


def _against(
    pairs: list[tuple[StepSeries, SeriesReport]], forecast: Path
) -> list[tuple[StepSeries, SeriesReport]]:
    from rerail.tools.detectors.against_forecast import with_expected
    from rerail.tools.forecast.compare import read_expected

    known = read_expected(forecast)
    return [(series, with_expected(series, report, known)) for series, report in pairs]


def _beside(
    pairs: list[tuple[StepSeries, SeriesReport]],
    baselines: Sequence[Path],
    read_log: LogReader | None,
) -> list[tuple[StepSeries, SeriesReport]]:
    from rerail.tools.detectors.with_baseline import good_runs, with_baseline

    runs = good_runs([(str(path), read_steps(path, read_log)) for path in baselines])
    return [(series, with_baseline(series, report, runs)) for series, report in pairs]


def _is_known(report: SeriesReport) -> bool:
    """Tell whether a comparison with good runs ended in an answer; a guess is none."""
    checks = report.baseline or ()
    return any(c.status == "same" for c in checks) and not any(
        c.status == "hypothesis" for c in checks
    )


def report_json(pairs: list[tuple[StepSeries, SeriesReport]]) -> str:
    """Return the object of contracts, `rerail detect --json`, as one line of text."""
    rows = [report.to_json() for _, report in pairs]
    return json.dumps({"schema_version": 1, "series": rows}, allow_nan=False)


def _write_plot(plot: Path, pairs: list[tuple[StepSeries, SeriesReport]]) -> None:
    from rerail.tools.detectors.svg_plot import render

    write_plot(plot, render(_worst_first(pairs)[:20]))


def _worst_first(
    pairs: list[tuple[StepSeries, SeriesReport]],
) -> list[tuple[StepSeries, SeriesReport]]:
    return sorted(
        pairs,
        key=lambda pair: (str(pair[1].outcome) not in _FAULTS, -pair[1].lost_s, pair[0].name),
    )


def _print(pairs: list[tuple[StepSeries, SeriesReport]], plot: Path | None, no_color: bool) -> None:
    from rich.console import Console

    from rerail.tools.detectors.terminal_plot import render

    console = Console(no_color=no_color or None, highlight=False, soft_wrap=False)
    ordered = _worst_first(pairs)
    if len(ordered) > 1:
        _summary(console, ordered)
    shown = [pair for pair in ordered if pair[1].events][:_MOST_PLOTS] or ordered[:1]
    for series, report in shown:
        _one(console, report)
        if report.n_steps >= 8:
            console.print(render(series, report, width=min(100, console.width - 2)), markup=False)
        _events(console, report)
        for check in report.baseline or ():
            console.print(f"baseline: {check.status}: {check.says}", markup=False)
        for note in report.notes:
            console.print(f"note: {note}", markup=False)
    if plot is not None:
        console.print(f"plot written to {plot}", markup=False)


def _summary(console: Console, ordered: list[tuple[StepSeries, SeriesReport]]) -> None:
    from rich.table import Table

    from rerail.tools.durations import seconds

    table = Table("series", "outcome", "steps", "healthy step", "lost", "events")
    for _, report in ordered[:_MOST_ROWS]:
        table.add_row(
            report.name,
            str(report.outcome),
            str(report.n_steps),
            seconds(report.baseline_s),
            seconds(report.lost_s),
            str(len(report.events)),
            style=None if str(report.outcome) in _FAULTS else "dim",
        )
    console.print(table)
    if len(ordered) > _MOST_ROWS:
        console.print(f"and {len(ordered) - _MOST_ROWS} more series", markup=False)


def _one(console: Console, report: SeriesReport) -> None:
    from rich.text import Text

    from rerail.tools.durations import seconds

    style = _STYLE.get(str(report.outcome), "bold red")
    line = Text(f"{report.name}: ")
    line.append(str(report.outcome), style=style)
    if report.reason:
        line.append(f", {report.reason}")
    line.append(f"; {report.n_steps} steps")
    if report.baseline_s == report.baseline_s:
        line.append(f", healthy step {seconds(report.baseline_s)}")
    if report.lost_s > 0:
        line.append(f", lost {seconds(report.lost_s)}")
    console.print(line)


def _events(console: Console, report: SeriesReport) -> None:
    from rich.table import Table

    if not report.events:
        return
    table = Table()
    for title in ("event", "step", "seen at", "before", "after", "change", "stage"):
        table.add_column(title, no_wrap=True)
    table.add_column("note")
    for event in report.events[:_MOST_ROWS]:
        change = f"{event.change:+.1%}" if event.change == event.change else "-"
        table.add_row(
            str(event.kind),
            str(event.step),
            str(event.detected_at_step),
            f"{event.before:.4g}",
            f"{event.after:.4g}",
            change,
            str(event.stage),
            event.note,
        )
    console.print(table)
    if len(report.events) > _MOST_ROWS:
        console.print(f"and {len(report.events) - _MOST_ROWS} more events", markup=False)
