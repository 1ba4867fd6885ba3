"""Whom the headings of a shell's loop are of: `for p in worker-0 worker-1; do echo "== $p"; kubectl logs run-$p; done`."""

from __future__ import annotations

from rerail.lazy_patterns import lazy
from rerail.log_parsers.prefixes import Origin

_LOOP = lazy(
    r"\bfor (?P<name>[A-Za-z_]\w{0,40}) in (?P<values>[\w.\- ]{1,2000}); ?do (?P<body>.{1,2000})"
)
# `\0` stands for the loop's variable in what follows.
_NAME = r"(?P<front>[A-Za-z0-9][\w.-]{0,100})?\0(?P<back>[\w.-]{0,100})"
_POD = lazy(r"\bkubectl\b[^;|&]{0,200}? (?:logs|exec)\b[^;|&]{0,200}? (?:pods?/)?" + _NAME)
_HOST = lazy(r"\b(?:ssh|rsh)(?: -\S+){0,6} (?:[a-z_][\w-]{0,31}@)?" + _NAME)


def looped(command: str) -> dict[str, Origin]:
    """Return where what a loop prints under each of its values is from; empty where it is no loop over named values.

    Only values that are a part of a name are told: a whole name in a heading tells the same itself.
    """
    loop = _LOOP.search(command)
    if loop is None:
        return {}
    name, values = loop["name"], loop["values"].split()
    body = loop["body"].replace("${" + name + "}", "\0").replace("$" + name, "\0")
    pod, host = _POD.search(body), _HOST.search(body)
    found = pod or host
    if found is None or not (found["front"] or found["back"]):
        return {}
    whole = {one: f"{found['front'] or ''}{one}{found['back']}".rstrip(".") for one in values}
    return {one: Origin(place=of) if pod else Origin(node=of) for one, of in whole.items()}
