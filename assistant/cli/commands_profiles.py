"""The commands on profiles of a running job: localize and scan."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer


def localize(
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="Op timelines, PyTorch profiler traces or their summaries, NCCL Inspector dumps, "
            "CSV or Parquet tables, DCGM "
            "exports, logs with straggler reports; files or folders."
        ),
    ],
    json_output: Annotated[
        bool, typer.Option("--json", help="One JSON object on standard output.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Write a rank-by-step heat map as SVG or PNG.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write findings, heat maps and distributions as a page.")
    ] = None,
    expected: Annotated[
        Path | None, typer.Option(help="What healthy windows of the job look like (--learn).")
    ] = None,
    before: Annotated[
        Path | None,
        typer.Option(
            help="Profiles of the same job before a change: say what moved; only a page judges, too."
        ),
    ] = None,
    perfetto: Annotated[
        Path | None, typer.Option(help="Write the traces of the named ranks for Perfetto.")
    ] = None,
    learn: Annotated[
        Path | None,
        typer.Option(help="Write what these healthy profiles look like to a file; judge nothing."),
    ] = None,
) -> None:
    """Name the slow rank, node, link, stage or function, and price it."""
    given = {
        "--json": json_output, "--plot": plot, "--html": html, "--expected": expected,
        "--before": before, "--perfetto": perfetto,
    }  # fmt: skip
    if learn is not None:
        _refuse("--learn", given, ())
    elif before is not None:
        _refuse("--before", given, ("--json", "--html", "--expected") if html else ("--json",))
    if before is not None:
        from rerail.assistant.cli.profiles import change_command

        raise typer.Exit(change_command(before, paths, json_output, html, expected))
    if learn is not None:
        from rerail.assistant.cli.profiles import learn_command

        raise typer.Exit(learn_command(paths, learn))
    from rerail.assistant.cli.localize import localize_command

    raise typer.Exit(localize_command(paths, json_output, plot, expected, perfetto, html))


def _refuse(mode: str, given: Mapping[str, object], fits: tuple[str, ...]) -> None:
    from rerail.errors import UsageError

    for name, value in given.items():
        if value and name not in (mode, *fits):
            more = " without --html" if name == "--expected" and mode == "--before" else ""
            raise UsageError(
                f"{name} and {mode} do not go together{more}", subject=name,
                hint=f"rerail localize PATHS {mode} ..., and {name} in a call of its own",
            )  # fmt: skip


def scan(
    paths: Annotated[
        list[Path], typer.Argument(help="Profiler traces, or logs; files or folders.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for what was read, on a shared file system.")],
    shard: Annotated[
        str | None, typer.Option(help="Only this part, 0/8 to 7/8; inside srun: that of the task.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes at a time.")] = 1,
    ray: Annotated[str | None, typer.Option(help="Ray cluster, auto or HOST:PORT.")] = None,
    logs: Annotated[
        bool, typer.Option("--logs", help="Read logs, for `rerail diagnose OUT`.")
    ] = False,
) -> None:
    """Read profiler traces (or logs) beside the data, for `rerail localize` (or `diagnose`)."""
    from rerail.assistant.cli.scan import scan_command

    raise typer.Exit(scan_command(paths, out, shard, jobs, ray, logs))


COMMANDS = (localize, scan)
