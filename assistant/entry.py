"""The `rerail` command: a hook, for which a scheduler waits, is answered before anything is loaded."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; Ctrl-C ends it without a word, also while it starts."""
    try:
        _run()
    except KeyboardInterrupt:
        sys.exit(130)


def _run() -> None:
    if sys.argv[1:2] == ["hook"]:
        from rerail.assistant.watch.hook import answered

        code = answered(sys.argv[2:])
        if code is not None:
            sys.exit(code)
    from rerail.assistant.cli.main import main as command_line

    command_line()
