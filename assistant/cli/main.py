"""The command line of rerail.

Only typer is imported here; a command's own imports happen when it runs, so that `--help` and a
small diagnosis start fast.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Annotated

import typer

from rerail.assistant.cli.commands_forecast import register_forecast
from rerail.assistant.cli.commands_recovery import register

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
        from importlib.metadata import version

        print(f"rerail {version('rerail')}")
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
    from rerail.assistant.cli.kb import explain_command

    raise typer.Exit(explain_command(sys.stdin.read() if line == "-" else line))


@kb.command("code", context_settings={"ignore_unknown_options": True})
def kb_code(
    kind: Annotated[str, typer.Argument(help="xid, sxid, ib or exit.")],
    code: Annotated[str, typer.Argument(help="The number: 79, 20034, 12, -9, 137, 0:125.")],
) -> None:
    """Say what an Xid, SXid, InfiniBand status, exit code or signal means."""
    from rerail.assistant.cli.kb import code_command

    raise typer.Exit(code_command(kind, code))


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
        list[str], typer.Argument(help="Files, folders, globs, or '-' for standard input.")
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
    follow: Annotated[bool, typer.Option("--follow", help="Watch a live job.")] = False,
    digest: Annotated[
        Path | None, typer.Option(help="Write the job on a few pages (under 64 kB) to this file.")
    ] = None,
    sarif: Annotated[
        Path | None, typer.Option(help="Write the verdict as SARIF 2.1.0, for CI, to this file.")
    ] = None,
    attempt: Annotated[
        int | None, typer.Option(help="Which start of the job, from 0, for the record.")
    ] = None,
    expected: Annotated[
        Path | None,
        typer.Option(help="What steps should take: JSON of `rerail forecast`, or a spec."),
    ] = None,
    no_store: Annotated[bool, typer.Option("--no-store", help="Keep no incident.")] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Of no effect: every diagnosis is kept.")
    ] = False,
) -> None:
    """Find the first fault of a failed, hung or slow job.

    Exit codes: 0 failure found; 3 no failure; 10 inconclusive; 11 evidence missing or unreadable;
    2 usage; 70 bug; 74 the output or the store cannot be written; 130 Ctrl-C; 141 the reader has gone.
    """
    from rerail.assistant.cli.diagnose import diagnose_command
    from rerail.assistant.cli.quick_start import no_thread_pool

    del keep
    with no_thread_pool():
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
        )
    raise typer.Exit(code)


@app.command("detect")
def detect(
    paths: Annotated[list[Path], typer.Argument(help="CSV, Parquet or any log with step lines.")],
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
) -> None:
    """Judge step series: slow phases, loss spikes, NaN, hangs."""
    from rerail.assistant.cli.detect import detect_command
    from rerail.assistant.step_logs import read_step_log

    raise typer.Exit(
        detect_command(paths, json_output, plot, read_log=read_step_log, expected=expected)
    )


@app.command("localize")
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
    expected: Annotated[
        Path | None, typer.Option(help="What healthy windows of the job look like (--learn).")
    ] = None,
    before: Annotated[
        Path | None,
        typer.Option(
            help="Profiles of the same job before a change: say what moved, judge nothing."
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
    if before is not None:
        from rerail.assistant.cli.profiles import change_command

        raise typer.Exit(change_command(before, paths, json_output))
    if learn is not None:
        from rerail.assistant.cli.profiles import learn_command

        raise typer.Exit(learn_command(paths, learn))
    from rerail.assistant.cli.localize import localize_command

    raise typer.Exit(localize_command(paths, json_output, plot, expected, perfetto))


@app.command("scan")
def scan(
    paths: Annotated[list[Path], typer.Argument(help="Profiler traces; files or folders.")],
    out: Annotated[Path, typer.Option(help="Folder for the summaries.")],
    shard: Annotated[
        str | None, typer.Option(help="Only this part, 0/8 to 7/8; inside srun: that of the task.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes at a time.")] = 1,
    ray: Annotated[str | None, typer.Option(help="Ray cluster, auto or HOST:PORT.")] = None,
) -> None:
    """Summarise profiler traces beside the data, for `rerail localize`."""
    from rerail.assistant.cli.scan import scan_command

    raise typer.Exit(scan_command(paths, out, shard, jobs, ray))


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


@app.command("incidents")
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


@app.command("show")
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


@app.command("timeline")
def timeline(
    incident: Annotated[str, typer.Argument(help="An incident, or 'last'.")],
    json_output: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Print what happened in an incident, in order, in UTC."""
    from rerail.assistant.cli.incidents import timeline_command

    raise typer.Exit(timeline_command(incident, json_output=json_output))


@app.command("similar")
def similar(
    incident: Annotated[str, typer.Argument(help="An incident, or 'last'.")],
    limit: Annotated[int, typer.Option(help="Most rows.")] = 10,
    json_output: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """List other incidents of the same cause."""
    from rerail.assistant.cli.incidents import similar_command

    raise typer.Exit(similar_command(incident, limit=limit, json_output=json_output))


@app.command("confirm")
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


@app.command("signoff")
def signoff(
    incident: Annotated[str, typer.Argument(help="An incident, or 'last'.")],
    resolution: Annotated[str, typer.Option(help="What ended it, in a sentence.")] = "",
    by: Annotated[str | None, typer.Option(help="Your name; the login name by default.")] = None,
) -> None:
    """Vouch for an incident's record; it becomes knowledge that later diagnoses may cite."""
    from rerail.assistant.cli.incidents import signoff_command

    raise typer.Exit(signoff_command(incident, resolution=resolution, by=by))


@app.command("postmortem")
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


register_forecast(app)
register(app)


def main() -> None:
    """Entry point: expected errors become one clear message and an exit code."""
    from rerail.assistant.cli.quick_start import collect_seldom, for_call
    from rerail.assistant.cli.standard_streams import EXIT_INTERRUPTED, guard
    from rerail.errors import RerailError

    collect_seldom()
    guard()
    try:
        try:
            for_call(app, sys.argv[1:])()
        finally:
            sys.stdout.flush()
    except RerailError as error:
        text = f"rerail: {error.message}"
        if error.hint:
            text += f"\n  try: {error.hint}"
        from rerail.log_parsers.redaction import redact

        print(redact(text), file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    except KeyboardInterrupt:
        raise SystemExit(EXIT_INTERRUPTED) from None
    except Exception as error:  # the outermost edge: a bug must not show the engineer a traceback
        _report_bug(error)
        raise SystemExit(70) from None
    finally:
        # At its end Python looks through all objects for cycles: over a second behind a model's client.
        gc.freeze()


def _report_bug(error: Exception) -> None:
    import tempfile
    import traceback

    from rerail.log_parsers.redaction import redact

    with tempfile.NamedTemporaryFile("w", prefix="rerail-bug-", suffix=".txt", delete=False) as out:
        out.write(redact(traceback.format_exc()))
    print(
        redact(f"rerail: internal error: {type(error).__name__}: {error}") + "\n"
        f"  this is a bug in rerail, not in your job; the details are in {out.name}",
        file=sys.stderr,
    )
