"""A diagnosis that is called the plain way is read here: loading the library of the command line takes as long as it.

Only names of options that the command line has, and only what both read alike; all else, also every
mistake, is left to it. `tests/assistant/test_plain_call.py` holds the two against each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

COMMAND = "diagnose"
_SWITCHES: dict[str, tuple[str, bool]] = {
    "--json": ("json_output", True),
    "--no-model": ("model", False),
    "--quiet": ("quiet", True),
    "-q": ("quiet", True),
    "--verbose": ("verbose", True),
    "-v": ("verbose", True),
    "--no-store": ("store", False),
    "--keep": ("", True),
}
_TEXTS = {"--job": "job", "--since": "since"}


def plain_diagnosis(arguments: Sequence[str]) -> dict[str, Any] | None:
    """Return what `diagnose_command` is called with, or None where the command line has to read it."""
    if arguments[:1] != [COMMAND]:
        return None
    paths: list[str] = []
    given: dict[str, Any] = {
        "json_output": False, "quiet": False, "verbose": False, "follow": False, "rank": None, "since": None,
    }  # fmt: skip
    rest = iter(arguments[1:])
    for one in rest:
        if one in _SWITCHES:
            name, value = _SWITCHES[one]
            if name:
                given[name] = value
        elif one in _TEXTS:
            text = next(rest, "-")
            if text.startswith("-"):
                return None
            given[_TEXTS[one]] = text
        elif one.startswith("-") and one != "-":
            return None
        else:
            paths.append(one)
    return {"paths": paths, **given} if paths else None
