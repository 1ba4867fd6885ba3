"""The `rerail` command: a hook, for which a scheduler waits, is answered before anything is loaded.

A plain diagnosis is called without the library of the command line, which all else is left to.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # as in `rerail`: until `main` is reached, Ctrl-C prints a traceback
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any


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
    _keep_patterns()
    from rerail.assistant.cli.plain_call import plain_diagnosis

    given = plain_diagnosis(sys.argv[1:])
    if given is None:
        from rerail.assistant.cli.main import main as command_line

        command_line()
    else:
        from rerail.assistant.cli.edge import run_guarded

        run_guarded(lambda: sys.exit(_diagnose(given)))


def _keep_patterns() -> None:
    """Let what this call compiles be there when the next one starts."""
    import atexit

    from rerail.kept_patterns import keep_in

    atexit.register(keep_in(_folder).save)


def _folder() -> Path:
    from rerail.cached_yaml import cache_folder

    return cache_folder()


def _diagnose(given: dict[str, Any]) -> int:
    from rerail.assistant.cli.diagnose import diagnose_command

    return diagnose_command(**given)
