"""The command line of rerail.

Only typer is imported here; a command's own imports happen when it runs, so that `--help` and a
small diagnosis start fast.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from rerail.assistant.cli import (
    commands_forecast,
    commands_incidents,
    commands_profiles,
    commands_recovery,
)
from rerail.assistant.cli.registered import register

app = typer.Typer(
    name="rerail",
    help="Finds the first fault of a failed training job, with the lines that prove it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(f"rerail {version('rerail')}")
        except PackageNotFoundError:
            print("rerail, run from its sources: pip install gives it a version")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    del version


kb = typer.Typer(
    help="Rules: run their examples, check them, explain a line.", no_args_is_help=True
)
app.add_typer(kb, name="kb")


@kb.command("test")
def kb_test(
    only: Annotated[str, typer.Argument(help="A rule id or a rule file name; empty for all.")] = "",
    engine: Annotated[str | None, typer.Option(help="hyperscan, re2 or re.")] = None,
) -> None:
    """Run the examples of the rules through the real pipeline."""
    from rerail.assistant.cli.kb import test_command

    raise typer.Exit(test_command(only, engine))


@kb.command("lint")
def kb_lint() -> None:
    """Check the form of the rules and that every leaf has one."""
    from rerail.assistant.cli.kb import lint_command

    raise typer.Exit(lint_command())


@kb.command("explain")
def kb_explain(
    line: Annotated[str, typer.Argument(help="A log line, or several; '-' reads standard input.")],
) -> None:
    """Say which rules would fire on a line and why the others do not."""
    from rerail.assistant.cli.kb import explain_command, standard_input

    raise typer.Exit(explain_command(standard_input() if line == "-" else line))


@kb.command("code", context_settings={"ignore_unknown_options": True})
def kb_code(
    kind: Annotated[str, typer.Argument(help="xid, sxid, ib or exit.")],
    code: Annotated[str, typer.Argument(help="The number: 79, 20034, 12, -9, 137, 0:125.")],
) -> None:
    """Say what an Xid, SXid, InfiniBand status, exit code or signal means."""
    from rerail.assistant.cli.kb import code_command

    raise typer.Exit(code_command(kind, code))


@kb.command("lnav")
def kb_lnav() -> None:
    """Print a format file for lnav: ranks and nodes from the labels of launchers."""
    import json

    from rerail.log_parsers.lnav_format import lnav_format

    print(json.dumps(lnav_format(), indent=2))


@kb.command("runbook")
def kb_runbook(
    failure_type: Annotated[str, typer.Argument(help="A failure type: cuda_oom.")],
) -> None:
    """Show what to check and to do for a failure type."""
    from rerail.assistant.cli.kb import runbook_command

    raise typer.Exit(runbook_command(failure_type))


@kb.command("propose")
def kb_propose(
    incident: Annotated[
        str, typer.Argument(help="A confirmed incident that no rule knew.")
    ] = "last",
    filters: Annotated[
        bool, typer.Option("--filters", help="Propose filters for routine lines instead.")
    ] = False,
    no_model: Annotated[bool, typer.Option("--no-model", help="Make the pattern by code.")] = False,
) -> None:
    """Propose a rule from a confirmed incident; it runs in the shadow until a person accepts it."""
    from rerail.assistant.cli.learn import propose_command

    raise typer.Exit(propose_command(incident, filters=filters, no_model=no_model))


@kb.command("review")
def kb_review(
    candidate: Annotated[str | None, typer.Argument(help="A candidate; none lists all.")] = None,
    accept: Annotated[bool, typer.Option("--accept", help="Put it into force.")] = False,
    reject: Annotated[bool, typer.Option("--reject", help="Drop it.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Accept without enough support.")] = False,
    by: Annotated[str | None, typer.Option(help="Your name; the login name by default.")] = None,
) -> None:
    """List learned candidates, show one, accept or reject it."""
    from rerail.assistant.cli.learn import review_command

    raise typer.Exit(review_command(candidate, accept=accept, reject=reject, force=force, by=by))


@app.command("diagnose")
def diagnose(
    paths: Annotated[
        list[str],
        typer.Argument(
            help="Files, folders, globs, '-' for standard input; or a job: 4711, 4711_3, k8s://namespace/job."
        ),
    ],
    job: Annotated[str | None, typer.Option(help="The job's id, for the record.")] = None,
    json_output: Annotated[
        bool, typer.Option("--json", help="One JSON object on standard output.")
    ] = False,
    no_model: Annotated[bool, typer.Option("--no-model", help="Rules only.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="One line.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="All evidence.")] = False,
    since: Annotated[
        str | None, typer.Option(help="Only what happened since: a time, or 2h, 30m.")
    ] = None,
    rank: Annotated[
        int | None, typer.Option(help="Only this rank's lines, and those of no rank.")
    ] = None,
    follow: Annotated[
        bool,
        typer.Option("--follow", help="Watch a live job; ends with the exit code of its verdict."),
    ] = False,
    digest: Annotated[
        Path | None, typer.Option(help="Write the job on a few pages (under 64 kB) to this file.")
    ] = None,
    sarif: Annotated[
        Path | None, typer.Option(help="Write the verdict as SARIF 2.1.0, for CI, to this file.")
    ] = None,
    attempt: Annotated[
        int | None, typer.Option(help="Which start of the job, from 0; of a named job the last.")
    ] = None,
    expected: Annotated[
        Path | None,
        typer.Option(help="What steps should take: JSON of `rerail forecast`, or a spec."),
    ] = None,
    baseline: Annotated[
        list[Path] | None, typer.Option(help="A good run of the same job; repeat it for more.")
    ] = None,
    locate_budget: Annotated[
        float,
        typer.Option(min=0.5, max=600, help="Seconds that finding a job's evidence may take."),
    ] = 20.0,
    no_store: Annotated[bool, typer.Option("--no-store", help="Keep no incident.")] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Of no effect: every diagnosis is kept.")
    ] = False,
) -> None:
    """Find the first fault of a failed, hung or slow job.

    Exit codes: 0 failure found; 3 no failure; 10 inconclusive; 11 evidence missing or unreadable;
    2 usage; 70 bug; 74 the output cannot be written; 75 the scheduler does not answer;
    130 Ctrl-C; 141 the reader has gone.
    """
    from rerail.assistant.cli.diagnose import diagnose_command

    del keep
    code = diagnose_command(
        paths,
        json_output=json_output,
        quiet=quiet,
        verbose=verbose,
        follow=follow,
        rank=rank,
        since=since,
        digest=digest,
        sarif=sarif,
        job=job,
        attempt=attempt,
        store=not no_store,
        model=not no_model,
        expected=expected,
        baselines=baseline or (),
        locate_budget=locate_budget,
    )
    raise typer.Exit(code)


@app.command("detect")
def detect(
    paths: Annotated[list[Path], typer.Argument(help="Logs, event files, tables: all with steps.")],
    json_output: Annotated[
        bool, typer.Option("--json", help="One JSON object on standard output.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Write the series with its episodes as SVG or PNG.")
    ] = None,
    expected: Annotated[
        Path | None,
        typer.Option(help="What steps should take: JSON of `rerail forecast`, or a spec."),
    ] = None,
    baseline: Annotated[
        list[Path] | None, typer.Option(help="A good run of the same job; repeat it for more.")
    ] = None,
) -> None:
    """Judge step series: slow phases, loss spikes, NaN, hangs; with --baseline what differs from a good run."""
    from rerail.assistant.cli.detect import detect_command
    from rerail.assistant.step_logs import read_step_log

    code = detect_command(
        paths,
        json_output,
        plot,
        read_log=read_step_log,
        expected=expected,
        baselines=baseline or (),
    )
    raise typer.Exit(code)


@app.command(
    "eval",
    context_settings={
        "ignore_unknown_options": True,
        "allow_extra_args": True,
        "help_option_names": [],
    },
)
def evaluate(context: typer.Context) -> None:
    """Measure rerail on labelled evidence: cases, logs, faultlab, detectors, bench."""
    from importlib.metadata import entry_points

    from rerail.errors import UsageError

    found = entry_points(group="rerail.commands", name="eval")
    if not found:
        raise UsageError("the evaluation commands are not installed", hint="pip install rerail")
    command = next(iter(found)).load()
    command(args=context.args, prog_name="rerail eval")


register(app, commands_incidents.COMMANDS)


@app.command("chat")
def chat(
    incident: Annotated[str, typer.Argument(help="An incident; the latest by default.")] = "last",
    ask: Annotated[str | None, typer.Option(help="Answer this one question and leave.")] = None,
    no_model: Annotated[bool, typer.Option("--no-model", help="Answers from the record.")] = False,
) -> None:
    """Talk about an incident; nothing can be changed from here."""
    from rerail.assistant.cli.chat import chat_command

    raise typer.Exit(chat_command(incident, ask=ask, no_model=no_model))


@app.command("mcp")
def mcp(
    logs: Annotated[
        list[Path] | None, typer.Option(help="Folder that may be diagnosed; this folder otherwise.")
    ] = None,
    http: Annotated[
        int,
        typer.Option(
            help="Serve streamable HTTP on this loopback port instead of stdio.", min=0, max=65535
        ),
    ] = 0,
) -> None:
    """Serve programs that speak the Model Context Protocol: reading only, nothing can be approved."""
    from rerail.assistant.cli.mcp import mcp_command

    raise typer.Exit(mcp_command(logs or [], http))


@app.command("serve")
def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.", min=0, max=65535)] = 8787,
    logs: Annotated[
        list[Path] | None,
        typer.Option(help="Folder that the start page may diagnose; this folder otherwise."),
    ] = None,
    name: Annotated[
        list[str] | None, typer.Option(help="Further host name under which it is reached.")
    ] = None,
    user_header: Annotated[
        str, typer.Option(help="Header in which a proxy that checks people names them.")
    ] = "",
    proxy: Annotated[
        list[str] | None, typer.Option(help="Address of that proxy; nobody else is believed.")
    ] = None,
    api_token_file: Annotated[
        Path | None, typer.Option(help="File with the bearer token of chat clients and Prometheus.")
    ] = None,
    oidc: Annotated[
        str, typer.Option(help="Issuer of the OpenID provider at which people sign in.")
    ] = "",
    oidc_client: Annotated[str, typer.Option(help="Our client id there.")] = "",
    oidc_secret_file: Annotated[
        Path | None, typer.Option(help="File with our client secret.")
    ] = None,
    oidc_claim: Annotated[str, typer.Option(help="The claim that names a person.")] = "email",
    url: Annotated[
        str, typer.Option(help="Address under which people reach this server; needed for --oidc.")
    ] = "",
) -> None:
    """Serve the page for the team: incidents, evidence, ranks, logs, chat, plans, post-mortems."""
    from rerail.assistant.cli.serve import serve_command

    raise typer.Exit(
        serve_command(
            host,
            port,
            logs=logs or [],
            names=name or [],
            user_header=user_header,
            proxies=proxy or [],
            api_token_file=api_token_file,
            oidc=oidc,
            oidc_client=oidc_client,
            oidc_secret_file=oidc_secret_file,
            oidc_claim=oidc_claim,
            url=url,
        )
    )


config = typer.Typer(
    help="Settings: what is in force and where it comes from.", no_args_is_help=True
)
app.add_typer(config, name="config")


@config.command("show")
def config_show() -> None:
    """Print every setting with its value and source."""
    from rerail.assistant.cli.config import show_command

    raise typer.Exit(show_command())


register(app, commands_profiles.COMMANDS)
register(app, commands_forecast.COMMANDS)
register(app, commands_recovery.COMMANDS)
for _name, _group in commands_recovery.GROUPS.items():
    app.add_typer(_group, name=_name)


def main() -> None:
    """Entry point: read the arguments and run the command that they name."""
    from rerail.assistant.cli.edge import run_guarded
    from rerail.assistant.cli.quick_start import for_call

    run_guarded(lambda: for_call(app, sys.argv[1:])())
