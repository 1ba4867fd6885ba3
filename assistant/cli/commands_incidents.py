"""The commands that look back: incidents, their record, a person's word on them, reviews and the report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def incidents(
    since: Annotated[str | None, typer.Option(help="A time, or 7d, 12h.")] = None,
    failure_type: Annotated[
        str | None, typer.Option("--type", help="Only this failure type.")
    ] = None,
    node: Annotated[str | None, typer.Option(help="Only those held against this node.")] = None,
    job: Annotated[str | None, typer.Option(help="Only those of this job.")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Diagnoses without a failure as well.")
    ] = False,
    limit: Annotated[int, typer.Option(help="Most rows.")] = 50,
    json_output: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """List incidents, the latest first."""
    from rerail.assistant.cli.incidents import incidents_command

    raise typer.Exit(
        incidents_command(
            since=since,
            failure_type=failure_type,
            node=node,
            job=job,
            everything=everything,
            limit=limit,
            json_output=json_output,
        )
    )


def show(
    incident: Annotated[
        str, typer.Argument(help="An incident, the beginning of its id, or 'last'.")
    ],
    evidence: Annotated[
        str | None, typer.Option(help="Show the log around this evidence line: E2.")
    ] = None,
    why: Annotated[
        bool, typer.Option("--why", help="Why this is the first fault, and why it is placed there.")
    ] = False,
    graph: Annotated[
        Path | None,
        typer.Option("--graph", metavar="FILE", help="Write what explains what, as .svg or .dot."),
    ] = None,
    json_output: Annotated[bool, typer.Option("--json")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="All evidence.")] = False,
) -> None:
    """Show an incident as it was diagnosed."""
    from rerail.assistant.cli.incidents import show_command

    raise typer.Exit(
        show_command(
            incident,
            evidence=evidence,
            json_output=json_output,
            verbose=verbose,
            reasons=why,
            graph=graph,
        )
    )


def timeline(
    incident: Annotated[str, typer.Argument(help="An incident, or 'last'.")],
    json_output: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Print what happened in an incident, in order, in UTC."""
    from rerail.assistant.cli.incidents import timeline_command

    raise typer.Exit(timeline_command(incident, json_output=json_output))


def similar(
    incident: Annotated[str, typer.Argument(help="An incident, or 'last'.")],
    limit: Annotated[int, typer.Option(help="Most rows.")] = 10,
    json_output: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """List other incidents of the same cause."""
    from rerail.assistant.cli.incidents import similar_command

    raise typer.Exit(similar_command(incident, limit=limit, json_output=json_output))


def confirm(
    incident: Annotated[str, typer.Argument(help="An incident, or 'last'.")],
    verdict: Annotated[str, typer.Option("--verdict", help="right, partly or wrong.")] = "right",
    failure_type: Annotated[
        str | None, typer.Option("--type", help="The true failure type; no_failure: it was none.")
    ] = None,
    first_fault: Annotated[
        str | None, typer.Option("--line", help="The true first fault, as FILE:LINE.")
    ] = None,
    note: Annotated[str, typer.Option(help="What else is known.")] = "",
    by: Annotated[str | None, typer.Option(help="Your name; the login name by default.")] = None,
) -> None:
    """Say whether the verdict was right, and what was true."""
    from rerail.assistant.cli.incidents import confirm_command
    from rerail.errors import UsageError

    if verdict not in ("right", "partly", "wrong"):
        raise UsageError(
            f"--verdict {verdict!r}", subject=verdict, hint="one of right, partly, wrong"
        )
    raise typer.Exit(
        confirm_command(
            incident,
            verdict=verdict,
            failure_type=failure_type,
            first_fault=first_fault,
            note=note,
            by=by,
        )
    )


def signoff(
    incident: Annotated[str, typer.Argument(help="An incident, or 'last'.")],
    resolution: Annotated[str, typer.Option(help="What ended it, in a sentence.")] = "",
    by: Annotated[str | None, typer.Option(help="Your name; the login name by default.")] = None,
) -> None:
    """Vouch for an incident's record; it becomes knowledge that later diagnoses may cite."""
    from rerail.assistant.cli.incidents import signoff_command

    raise typer.Exit(signoff_command(incident, resolution=resolution, by=by))


def postmortem(
    incidents: Annotated[
        list[str] | None, typer.Argument(help="An incident, or several for one review.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="A .md or .html file; edits in it stay.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="Review everything since a time, or 7d.")
    ] = None,
    job: Annotated[str | None, typer.Option(help="Only incidents of this job.")] = None,
    no_model: Annotated[bool, typer.Option("--no-model", help="Rules only.")] = False,
) -> None:
    """Draft a post-mortem from the record."""
    from rerail.assistant.cli.postmortem import postmortem_command

    raise typer.Exit(
        postmortem_command(incidents or [], output=output, since=since, job=job, no_model=no_model)
    )


def report(
    since: Annotated[str, typer.Option(help="A time, or 7d, 12h.")] = "7d",
    json_output: Annotated[
        bool, typer.Option("--json", help="One JSON object on standard output.")
    ] = False,
    jobs: Annotated[
        Path | None,
        typer.Option(help="The site's record of jobs (sacct -P): what stands out, sizes, goodput."),
    ] = None,
    csv: Annotated[
        Path | None, typer.Option(help="Write each table as a CSV file into this folder.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write it as one page without scripts to this file.")
    ] = None,
) -> None:
    """Count what failed on this site: per day and category, GPU-hours lost, nodes, repeats, times, goodput."""
    from rerail.assistant.cli.report import report_command

    raise typer.Exit(report_command(since, json_output=json_output, jobs=jobs, csv=csv, html=html))


COMMANDS = (incidents, show, timeline, similar, confirm, signoff, postmortem, report)
