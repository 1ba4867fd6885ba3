"""Whom the headings of a shell's loop are of: `for p in worker-0 worker-1; do echo "== $p"; kubectl logs run-$p; done`."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from rerail.cached_yaml import load_cached
from rerail.lazy_patterns import lazy
from rerail.log_parsers.prefixes import Origin

FILE = Path(__file__).with_name("sections.yaml")
_LOOP = lazy(
    r"\bfor (?P<name>[A-Za-z_]\w{0,40}) in (?P<values>[\w.\- ]{1,2000}); ?do (?P<body>.{1,2000})"
)
# `\0` stands for the loop's variable in what follows.
_NAME = r"(?P<front>[A-Za-z0-9][\w.-]{0,100})?\0(?P<back>[\w.-]{0,100})"


@lru_cache(maxsize=1)
def _commands() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Return how commands name a pod or a host, each beside `pods` or `hosts`, as `sections.yaml` has them."""
    in_loops = load_cached(FILE)["in_loops"]
    return tuple((of, lazy(text + _NAME)) for of in ("pods", "hosts") for text in in_loops[of])


def looped(command: str) -> dict[str, Origin]:
    """Return where what a loop prints under each of its values is from; empty where it is no loop over named values.

    Only values that are a part of a name are told: a whole name in a heading tells the same itself.
    """
    loop = _LOOP.search(command)
    if loop is None:
        return {}
    name, values = loop["name"], loop["values"].split()
    body = loop["body"].replace("${" + name + "}", "\0").replace("$" + name, "\0")
    named = ((of, match) for of, one in _commands() if (match := one.search(body)) is not None)
    of, found = next(named, ("", None))
    if found is None or not (found["front"] or found["back"]):
        return {}
    whole = {one: f"{found['front'] or ''}{one}{found['back']}".rstrip(".") for one in values}
    return {
        one: Origin(place=name) if of == "pods" else Origin(node=name)
        for one, name in whole.items()
    }
