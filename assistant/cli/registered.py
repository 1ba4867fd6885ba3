"""How the modules of commands are joined to one command line: each names its functions, in the order of `--help`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import typer

_FORWARDS = "forwards_options"
"""Name of the attribute of a command whose further options belong to the program that it starts."""


def register(app: typer.Typer, commands: Iterable[Callable[..., None]]) -> None:
    """Add functions as commands; a command is called as its function is, with hyphens."""
    for command in commands:
        further: dict[str, Any] = {}
        if getattr(command, _FORWARDS, False):
            further = {"ignore_unknown_options": True, "allow_interspersed_args": False}
        app.command(command.__name__.replace("_", "-"), context_settings=further)(command)


def passing_through(command: Callable[..., None]) -> Callable[..., None]:
    """Mark a command that hands the options it does not know to a program."""
    setattr(command, _FORWARDS, True)
    return command
