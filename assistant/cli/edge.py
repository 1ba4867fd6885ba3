"""The outermost edge of the command line: expected errors become one clear message and an exit code."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable

from rerail.errors import RerailError

# A look through all installed packages for plugins of pydantic costs every start; rerail has none.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")


def run_guarded(call: Callable[[], object]) -> None:
    """Run a command to its end, which is a SystemExit wherever the command or an error says with which code."""
    from rerail.assistant.cli.quick_start import collect_seldom
    from rerail.assistant.cli.standard_streams import EXIT_INTERRUPTED, EXIT_NO_MEMORY, guard

    collect_seldom()
    guard()
    try:
        try:
            call()
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
    except Exception as error:  # a bug must not show the engineer a traceback
        if isinstance(error, MemoryError):
            error.__traceback__ = None  # what it holds is let go
            print(
                "rerail: there is not enough memory\n  try: a higher limit (ulimit -v), or RERAIL_WORKERS=1",
                file=sys.stderr,
            )
            raise SystemExit(EXIT_NO_MEMORY) from None
        if _interrupted(error):
            raise SystemExit(EXIT_INTERRUPTED) from None
        from rerail.assistant.cli.bug_report import report_bug

        report_bug(error)
        raise SystemExit(70) from None
    finally:
        # At its end Python looks through all objects for cycles: over a second behind a model's client.
        gc.freeze()


def _interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C stands behind an error: a library that is being loaded may tell it as an error of its own."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False
