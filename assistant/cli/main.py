"""The command line of rerail.

Only typer is imported here; a command's own imports happen when it runs, so that `--help` and a
small diagnosis start fast.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Optional

import typer

app = typer.Typer(
    name="rerail",
    help="Finds the first fault of a failed training job, with the lines that prove it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
kb = typer.Typer(help="Rules: run their examples, check them, explain a line.", no_args_is_help=True)
app.add_typer(kb, name="kb")


@kb.command("test")
def kb_test(
    only: Annotated[str, typer.Argument(help="A rule id or a rule file name; empty for all.")] = "",
    engine: Annotated[Optional[str], typer.Option(help="hyperscan, re2 or re.")] = None,
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


def main() -> None:
    """Entry point: expected errors become one clear message and an exit code."""
    from rerail.errors import RerailError

    try:
        app()
    except RerailError as error:
        text = f"rerail: {error.message}"
        if error.hint:
            text += f"\n  try: {error.hint}"
        print(text, file=sys.stderr)
        raise SystemExit(error.exit_code) from None


_ = Path
