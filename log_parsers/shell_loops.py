"""Whom the headings of a shell's loop are of: `for p in worker-0 worker-1; do echo "== $p"; kubectl logs run-$p; done`."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from rerail.cached_yaml import load_cached
from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy
from rerail.log_parsers.prefixes import Origin

FILE = Path(__file__).with_name("sections.yaml")
_LOOP = lazy(
    r"\bfor (?P<name>[A-Za-z_]\w{0,40}) in (?P<values>[\w.\- ]{1,2000}); ?do (?P<body>.{1,2000})"
)
_HOST = lazy(r"(?=[\w.-]*\d)[A-Za-z0-9][\w.-]{1,80}")
# `\0` stands for the loop's variable in what follows.
_NAME = r"(?P<front>[A-Za-z0-9][\w.-]{0,100})?\0(?P<back>[\w.-]{0,100})"


@lru_cache(maxsize=1)
def _commands() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Return how commands name a pod or a host, each beside `pods` or `hosts`, as `sections.yaml` has them."""
    in_loops = load_cached(FILE)["in_loops"]
    return tuple((of, lazy(text + _NAME)) for of in ("pods", "hosts") for text in in_loops[of])


@dataclass(frozen=True, slots=True)
class AskedHost:
    """A command whose answer tells its host first: one of these names, or what stands directly below its line."""

    names: frozenset[str] = frozenset()
    line: int = 0
    """The line of the command; 0 where none asks."""

    def told(self, number: int, raw: bytes) -> Origin | None:
        """Return whose the lines below a line are, where it is the name that was asked for."""
        if not self.line:
            return None
        word = raw.strip().decode("utf-8", "replace")
        if not _HOST.fullmatch(word):
            return None
        known = word in self.names or word.split(".")[0] in self.names
        return Origin(node=word) if known or (not self.names and number == self.line + 1) else None


def asked_host(command: str, number: int) -> AskedHost:
    """Return what tells the host of the answers to a command at a line; nothing where it does not ask for it."""
    asks = re.search(load_cached(FILE)["asks_for_its_host"], command)
    if asks is None:
        return AskedHost()
    loop = _LOOP.search(command)
    return AskedHost(frozenset(loop["values"].split()) if loop else frozenset(), number)


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
