"""`rerail report`: what failed on this site in a span of time, counted."""

from __future__ import annotations

import io
import json
import shutil
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rerail.assistant.fleet import fleet_since
from rerail.assistant.presentation.fleet import FleetView
from rerail.assistant.presentation.fleet_frames import fleet_frames
from rerail.assistant.presentation.fleet_tables import site_tables
from rerail.assistant.presentation.fleet_words import (
    COUNT_IS_NO_PROOF,
    fleet_sentences,
    gpu_hours_words,
    minute_words,
    types_words,
    unknown_words,
)
from rerail.errors import ConfigError, UsageError

_WIDTH = 80
_KEPT = "\N{NO-BREAK SPACE}"


def report_command(
    since: str, *, json_output: bool, jobs: Path | None, csv: Path | None, html: Path | None
) -> int:
    """Print the fleet view since a time, or write it as CSV files or a page; exit code 0.

    Raises:
        UsageError: `since` is no time, or a file cannot be written.
        EvidenceError: The record of jobs cannot be read.
    """
    view = fleet_since(since, jobs)
    if csv is not None:
        _write_csv(view, csv)
    if html is not None:
        _write_html(view, html)
    if json_output:
        print(json.dumps(asdict(view), indent=2))
        return 0
    if csv is not None or html is not None:
        return 0
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH
    for sentence in fleet_sentences(view):
        print(textwrap.fill(sentence, width, subsequent_indent="  ", break_on_hyphens=False))
    if not view.incidents:
        print("rerail incidents lists everything that is on record")
        return 0
    _periods(view, width)
    console = Console(width=width, highlight=False)
    for table, note in _tables(view):
        with console.capture() as drawn:
            console.print(table)
        print("\n" + "\n".join(line.rstrip() for line in drawn.get().splitlines()))
        if note:
            print(textwrap.fill(note, width))
    return 0


def _write_csv(view: FleetView, folder: Path) -> None:
    """Write one file a table; they are named to the reader."""
    import csv

    for name, rows in fleet_frames(view).items():
        if not rows:
            continue
        text = io.StringIO()
        writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        _write(folder / f"{name}.csv", text.getvalue())


def _write_html(view: FleetView, path: Path) -> None:
    try:
        from rerail.assistant.presentation.fleet_page import fleet_html
    except ModuleNotFoundError:
        raise ConfigError(
            "the page needs jinja2", subject="--html", hint="pip install 'rerail[report]'"
        ) from None
    _write(path, fleet_html(view))


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{path}: {error.strerror}", subject=str(path), hint="name a place that can be written"
        ) from None
    print(f"written: {path}", file=sys.stderr)


def _periods(view: FleetView, width: int) -> None:
    print(f"\nIncidents per {view.period}" + (", by its Monday" if view.period == "week" else ""))
    count_width = len(str(max(row.incidents for row in view.periods)))
    titles = {one.id: one.title for one in view.categories}
    for row in view.periods:
        head = f"{row.begins}  {row.incidents:>{count_width}}  "
        kinds = ", ".join(
            f"{titles.get(kind, kind)} {count}".replace(" ", _KEPT)
            for kind, count in row.by_category.items()
        )
        lines = textwrap.fill(head + kinds, width, subsequent_indent=" " * len(head))
        print(lines.replace(_KEPT, " ").rstrip())


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="", box=None, pad_edge=False)
    for name in columns:
        number = name in ("incidents", "established", "jobs", "GPU-hours lost")
        table.add_column(name, justify="right" if number else "left", overflow="fold")
    return table


def _tables(view: FleetView) -> Iterator[tuple[Table, str]]:
    """Yield each table with what is to be said below it."""
    kinds = _table("By category", "incidents", "GPU-hours lost", "", "category")
    for kind in view.categories:
        hours = kind.gpu_hours
        kinds.add_row(
            str(kind.incidents), gpu_hours_words(hours), unknown_words(hours), Text(kind.title)
        )
    yield kinds, ""
    if view.nodes:
        several = len({row.cluster for row in view.nodes}) > 1
        title = f"Nodes with most incidents{_first(len(view.nodes), view.node_count)}"
        nodes = _table(title, "incidents", "established", "last (UTC)", "node", "failure types")
        for node in view.nodes:
            nodes.add_row(
                str(node.incidents),
                str(node.established),
                node.last[:10],
                Text(f"{node.cluster}/{node.node}" if several else node.node),
                Text(types_words(node)),
            )
        yield nodes, COUNT_IS_NO_PROOF if view.site is None else ""
    for one in site_tables(view):
        table = Table(
            title=one.title, title_justify="left", title_style="", box=None, pad_edge=False
        )
        for name in one.columns:
            table.add_column(name, justify="left" if name in one.left else "right", overflow="fold")
        for row in one.rows:
            table.add_row(*map(Text, row))
        yield table, one.note
    if view.repeats:
        title = f"Seen the same way more than once{_first(len(view.repeats), view.repeat_count)}"
        repeats = _table(title, "incidents", "jobs", "last (UTC)", "failure type", "latest")
        for repeat in view.repeats:
            repeats.add_row(
                str(repeat.incidents),
                str(repeat.jobs) if repeat.jobs else "-",
                minute_words(repeat.last),
                Text(repeat.failure_type),
                Text(repeat.latest[0]),
            )
        yield repeats, ""


def _first(shown: int, all_of_them: int) -> str:
    return "" if shown == all_of_them else f", the first {shown} of {all_of_them}"
