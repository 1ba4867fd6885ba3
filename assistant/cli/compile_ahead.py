"""Compiles the rules for large logs while nobody waits: in a process of its own, behind a small diagnosis."""

from __future__ import annotations

import os
import subprocess
import sys

_CALL = "from rerail.assistant.cli.compile_ahead import compile_all; compile_all()"


def in_background() -> None:
    """Start the compiling, where the rules are not compiled yet; it goes on when this process ends."""
    from rerail.assistant.pipeline import scan_plan
    from rerail.log_parsers.scan import compiled_at_hand

    plan = scan_plan()
    if plan.engine or plan.cache is None or compiled_at_hand(plan.signatures, plan.cache):
        return
    try:
        subprocess.Popen(
            [sys.executable, "-c", _CALL],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True, cwd="/",
        )  # fmt: skip
    except OSError:
        return  # the next large log compiles them


def compile_all() -> None:
    """Compile all that a large log needs, at the lowest priority."""
    from rerail.assistant.pipeline import scan_plan
    from rerail.log_parsers.scan import make_scanner, sieve_of

    os.nice(19)
    plan = scan_plan()
    sieve_of(make_scanner(plan.signatures, cache=plan.cache))
