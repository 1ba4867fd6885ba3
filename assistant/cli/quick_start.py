"""What a command that lives for half a second does without."""

from __future__ import annotations

import copy
import gc
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typer import Typer

_POOL = "OPENBLAS_NUM_THREADS"


def collect_seldom() -> None:
    """Look for garbage cycles after 200,000 new objects and not after 700.

    Loading modules and rules makes half a million objects that all stay; going through them again
    and again is a tenth of a diagnosis.
    """
    gc.set_threshold(200_000, 20, 20)


@contextmanager
def no_thread_pool() -> Iterator[None]:
    """Let numpy, where it is needed, load without the threads of its linear algebra.

    Starting one for every core costs more than all else that loading numpy does, and a diagnosis
    multiplies no matrices. The variable is taken back: whatever is started later decides for itself.
    """
    if _POOL in os.environ:
        yield
        return
    os.environ[_POOL] = "1"
    try:
        yield
    finally:
        os.environ.pop(_POOL, None)


def for_call(app: Typer, arguments: Sequence[str]) -> Typer:
    """Return the command line with nothing but the command that is called, or whole if none is.

    All commands together have 200 options, and describing them takes longer than reading a log. The
    list of all commands needs none of them.
    """
    name = arguments[0] if arguments else "--help"
    if name == "--help":
        return _listed(app)
    commands = [
        one
        for one in app.registered_commands
        if (one.name or getattr(one.callback, "__name__", "").replace("_", "-")) == name
    ]
    groups = [one for one in app.registered_groups if one.name == name]
    if not commands and not groups:
        return app
    part = copy.copy(app)
    part.registered_commands, part.registered_groups = commands, groups
    return part


def _listed(app: Typer) -> Typer:
    """Return the command line with commands that have a name and a text, and no options."""
    listed = copy.copy(app)
    listed.registered_commands = [copy.copy(one) for one in app.registered_commands]
    for command in listed.registered_commands:
        command.callback = _without_options(command.callback)
    listed.registered_groups = [copy.copy(one) for one in app.registered_groups]
    for group in listed.registered_groups:
        group.typer_instance = copy.copy(group.typer_instance)
        if group.typer_instance is not None:
            group.typer_instance.registered_commands = []
    return listed


def _without_options(command: Callable[..., object] | None) -> Callable[..., object]:
    def listed() -> None:
        raise AssertionError("the list of commands runs none")

    listed.__name__ = getattr(command, "__name__", "")
    listed.__doc__ = command.__doc__
    return listed
