"""`rerail localize`: name the slow rank, link or stage in traces, tables and exports; only prints."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rerail.assistant.cli.plot_file import check_plot_name, write_plot
from rerail.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from rerail.tools.localize.findings import Localization
    from rerail.tools.localize.localize_paths import Judged

_WORST_FIRST = ("localized", "imbalance", "no_reference", "unexplained", "healthy")
_EXIT = {"localized": 0, "imbalance": 0, "no_reference": 10, "unexplained": 10, "healthy": 3}
_STYLE = {"localized": "bold red", "imbalance": "bold yellow", "healthy": "green"}
_MOST_ROWS = 30


def localize_command(
    paths: list[Path],
    json_output: bool = False,
    plot: Path | None = None,
    expected: Path | None = None,
    perfetto: Path | None = None,
    html: Path | None = None,
) -> int:
    """Judge the inputs, print the findings and return the exit code.

    0: something was localised; 3: healthy; 10: no reference or unexplained.

    Raises:
        UsageError: no path was given, the plot can be written neither as SVG nor as PNG, or a library
            for the page is not installed.
        EvidenceError: an input cannot be read or judged, or a file cannot be written.
    """
    from rerail.assistant.straggler_logs import read_straggler_log
    from rerail.tools.localize.localize_paths import localize_paths

    if not paths:
        raise UsageError("no file was given", hint="rerail localize trace.parquet")
    check_plot_name(plot)
    judged = localize_paths(paths, read_straggler_log, expected)
    worst_first(judged)
    if plot is not None:
        _write_plot(plot, judged)
    if html is not None:
        from rerail.assistant.cli.localize_page import write_page

        write_page(html, judged, expected)
    if perfetto is not None:
        _write_perfetto(perfetto, paths, judged)
    if json_output:
        sys.stdout.write(localize_json([one.localization for one in judged]) + "\n")
    else:
        _print(judged, plot)
        if html is not None:
            sys.stdout.write(f"page written to {html}\n")
    return _EXIT[str(judged[0].localization.outcome)]


def worst_first(judged: list[Judged]) -> None:
    """Put the inputs in order, the one with the worst verdict first."""
    judged.sort(key=lambda one: _WORST_FIRST.index(str(one.localization.outcome)))


def localize_json(found: list[Localization]) -> str:
    """Return the object of contracts, `rerail localize --json`: the worst input's verdict on top."""
    rows = [one.to_json() for one in found]
    findings = sorted(
        (finding for row in rows for finding in row["findings"]), key=lambda f: -f["lost_s"]
    )
    top = {key: value for key, value in rows[0].items() if key not in ("name", "findings")}
    return json.dumps(
        {"schema_version": 1, **top, "findings": findings, "inputs": rows}, allow_nan=False
    )


def _write_plot(plot: Path, judged: list[Judged]) -> None:
    from rerail.tools.localize.heatmap_svg import render_heatmap

    maps = [one.heatmap for one in judged if one.heatmap is not None]
    if not maps:
        raise UsageError(
            "nothing to plot: the inputs hold no compute time per rank and step",
            subject=str(plot), hint="leave out --plot",
        )  # fmt: skip
    write_plot(plot, render_heatmap(maps))


def _write_perfetto(out: Path, paths: list[Path], judged: list[Judged]) -> None:
    from rerail.tools.profiles.collect import profile_files
    from rerail.tools.profiles.perfetto import write_perfetto

    ranks = {rank for one in judged for f in one.localization.findings for rank in f.workers}
    if not ranks:
        sys.stderr.write(f"{out} was not written: no rank is named\n")
        return
    count = write_perfetto([file for path in paths for file in profile_files(path)], ranks, out)
    of = f"{len(ranks)} rank{'s' if len(ranks) > 1 else ''}"
    sys.stderr.write(f"{count} events of {of} written to {out}\n")


def _print(judged: list[Judged], plot: Path | None) -> None:
    from rich.console import Console

    from rerail.tools.localize.heatmap_text import render_text

    console = Console(highlight=False, soft_wrap=False)
    for one in judged:
        _one(console, one.localization)
        if one.heatmap is not None and one.localization.findings:
            console.print(render_text(one.heatmap, min(100, console.width - 2)), markup=False)
    if plot is not None:
        console.print(f"plot written to {plot}", markup=False)


def _one(console: Console, found: Localization) -> None:
    from rich.text import Text

    line = Text(f"{found.name}: ")
    line.append(str(found.outcome), style=_STYLE.get(str(found.outcome), "bold"))
    details = found.details
    if "slowdown" in details:
        step = details["step_time_s"]
        line.append(
            f"; step {step['measured']:.4g} s, without stragglers {step['ideal']:.4g} s "
            f"({details['slowdown']:.3f}x), over {details['steps']} steps"
        )
    console.print(line)
    _findings(console, found)
    if not found.findings and details.get("profile", {}).get("own_compute_s"):
        _described(console, details["profile"])
    if details.get("by_stage"):
        _slowdowns(console, details)
    for note in found.missing:
        console.print(f"  missing: {note}", markup=False)


def _described(console: Console, profile: dict[str, Any]) -> None:
    """Print what differs between the ranks where nobody is named."""
    from rerail.tools.durations import seconds

    least, most = profile["own_compute_s"]["least"], profile["own_compute_s"]["most"]
    long = profile["longest_step"]
    if profile["workers"] == 1:
        largest = ", ".join(
            f"{one['function']} {one['beta']:.0%}" for one in profile["functions"][:4]
        )
        console.print(
            f"  step {seconds(profile['step_time_s'])}, own compute {seconds(least['s'])}; most of it: {largest}",
            markup=False,
        )
        return
    console.print(
        f"  own compute a step: {seconds(least['s'])} on rank {least['rank']} to {seconds(most['s'])} on rank "
        f"{most['rank']}; the longest step, {seconds(long['s'])}, on rank {long['rank']}; "
        f"step {seconds(profile['step_time_s'])}"
        + ("" if profile.get("gpu_events", True) else "; no GPU events: times of processes"),
        markup=False,
    )


def _findings(console: Console, found: Localization) -> None:
    from rich.table import Table

    if not found.findings:
        return
    priced = any(one.lost_per_step_s > 0 for one in found.findings)
    table = Table()
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("cause", no_wrap=True)
    table.add_column("ranks")
    table.add_column("ratio", justify="right", no_wrap=True)
    if priced:
        table.add_column("lost per step", justify="right", no_wrap=True)
        table.add_column("in all", justify="right", no_wrap=True)
    shown = found.findings[:_MOST_ROWS]
    for number, one in enumerate(shown, 1):
        price = [f"{one.lost_per_step_s:.4g} s", f"{one.lost_s:.4g} s"] if priced else []
        table.add_row(
            str(number),
            one.kind.replace("_", " "),
            _ranks(one.workers),
            f"{one.ratio:.2f}x",
            *price,
        )
    console.print(table)
    for number, one in enumerate(shown, 1):
        console.print(f"  {number}  {one.reason}", markup=False)
    if len(found.findings) > _MOST_ROWS:
        console.print(f"and {len(found.findings) - _MOST_ROWS} more findings", markup=False)


def _ranks(workers: tuple[int, ...]) -> str:
    if not workers:
        return "-"
    shown = ", ".join(map(str, workers[:4]))
    return shown if len(workers) <= 4 else f"{shown} and {len(workers) - 4} more"


def _slowdowns(console: Console, details: dict[str, dict[str, float]]) -> None:
    """Print S_x: how slow the ideal run gets when one part is as it was."""
    for name, key in (("dp_rank", "by_dp_rank"), ("stage", "by_stage"), ("op type", "by_optype")):
        top = [f"{part} {value:.3f}x" for part, value in list(details[key].items())[:4]]
        console.print(f"  slowdown by {name}: {', '.join(top)}", markup=False)
    console.print(
        f"  share of the loss in the slowest 3 % of workers {details['m_w']:.1%}, "
        f"in the last stage {details['m_s']:.1%}",
        markup=False,
    )
