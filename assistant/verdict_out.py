"""A diagnosis on standard output, and the exit code that it gives; for all commands that end with one."""

from __future__ import annotations

import sys

from rerail.domain.diagnosis import Diagnosis, Outcome, Status

EXIT_NO_FAILURE = 3
EXIT_INCONCLUSIVE = 10


def exit_code(diagnosis: Diagnosis) -> int:
    """Return the exit code that contracts.md gives to a diagnosis."""
    if diagnosis.outcome is Outcome.NO_FAILURE:
        return EXIT_NO_FAILURE
    if diagnosis.outcome is Outcome.FAILURE and diagnosis.status in (
        Status.ESTABLISHED,
        Status.SUPPORTED,
    ):
        return 0
    return EXIT_INCONCLUSIVE


def show(diagnosis: Diagnosis, *, json_output: bool, quiet: bool, verbose: bool) -> None:
    """Print a diagnosis as JSON, as one line, or in full."""
    if json_output:
        sys.stdout.write(diagnosis.model_dump_json(indent=2) + "\n")
        return
    if quiet:
        first = diagnosis.first_fault
        where = f" {first.file}:{first.line}" if first else ""
        name = f" {diagnosis.incident}" if diagnosis.incident else ""
        print(
            f"{diagnosis.outcome} {diagnosis.status} {diagnosis.failure_type or '-'}{where}{name}"
        )
        return
    from rich.console import Console

    from rerail.assistant.render import render

    # A pipe has no width of its own; the report is laid out for 110 columns.
    console = Console(width=None if sys.stdout.isatty() else 110, soft_wrap=True)
    render(diagnosis, console, verbose=verbose)
