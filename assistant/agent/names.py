"""Names of hosts, users and folders as a model behind an external endpoint sees them, and back again.

Opt-in (`RERAIL_MODEL_HIDE_NAMES`). The map lives for one run and never leaves the process. What a job
calls its ranks, steps and functions stays: without it there is nothing to explain.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from rerail.assistant.agent.slots import typed
from rerail.assistant.agent_tools.facts import JobFacts
from rerail.cached_yaml import load_cached
from rerail.domain.incident import SnapshotLine
from rerail.errors import ConfigError
from rerail.log_parsers.masks import mask
from rerail.settings import Settings

_KINDS = {"TAKEN": "USER", "MAIL": "USER", "PERSON": "USER", "NEAR": "HOST", "SITE": "HOST"}
_STAND_IN = re.compile(r"\b(?:HOST|USER|PATH|ADDRESS)_\d+\b")
_PACKAGES = "/site-packages/"
_WORTH = r"(?!rank|gpu|cuda|step|line|device|port|epoch|iter|attempt)"
_ALWAYS = rf"""
    (?P<NEAR>(?:(?<=\bon[ ])|(?<=\bnode[ ])|(?<=\bnode=)|(?<=\bhost[ ])|(?<=\bhost=)|(?<=\bfrom[ ]))
       {_WORTH}[a-z][\w-]*\d[\w.-]*\b)
  | (?P<TAKEN>\b(?:HOST|USER|PATH|ADDRESS)_\d+\b)
  | (?P<MAIL>\b[\w.+-]+@[\w-]+(?:\.[\w-]+)*)
  | (?P<USER>(?<=\buser=)[\w.-]+|(?<=\buser[ ])[\w.-]*\d[\w.-]*|(?<=\bUSER=)[\w.-]+|(?<=\()[a-z_][\w-]*(?=\)[ ]gid=))
  | (?P<PATH>(?<![\w./:])(?:/[\w.@%+~=-]+){{2,}}/?)
  | (?P<ADDRESS>\b\d{{1,3}}(?:\.\d{{1,3}}){{3}}\b|(?<![\w:])(?:[0-9a-fA-F]{{1,4}}:){{3,7}}[0-9a-fA-F]{{1,4}}\b)
"""


class Names:
    """A reversible map between names and stand-ins such as HOST_1."""

    def __init__(
        self, hosts: Iterable[str] = (), pattern: str = "", users: Iterable[str] = ()
    ) -> None:
        host, user = _any_of(_forms(hosts)), _any_of({u for u in users if len(u) > 1})
        # The names of hosts come first: they also stand in paths.
        hosts_first = (
            rf"(?P<HOST>(?<![\w-])(?i:{host})(?:\.[A-Za-z][\w-]*)*(?![\w-])) |" if host else ""
        )
        hosts_first += rf"(?P<PERSON>(?<![\w-])(?i:{user})(?![\w-])) |" if user else ""
        own = f"(?P<SITE>{pattern}) |" if pattern else ""
        try:
            self._names = re.compile(f"{own}{hosts_first}{_ALWAYS}", re.VERBOSE)
        except re.error as error:
            raise ConfigError(
                f"model_hide_pattern: {error}",
                subject="model_hide_pattern",
                hint="a regular expression",
            ) from None
        self._stand_ins: dict[str, str] = {}
        self._originals: dict[str, str] = {}

    def hide(self, text: str) -> str:
        """Return a text with every name replaced by its stand-in."""
        hidden = self._names.sub(self._replace, text)
        # A name that was met in a telling place is hidden in the others as well.
        for made, name in self._originals.items():
            if not made.startswith(("HOST_", "USER_")) or _STAND_IN.fullmatch(name):
                continue
            if name in hidden:
                hidden = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", made, hidden)
        return hidden

    def restore(self, text: str) -> str:
        """Return a text with every stand-in replaced by the name it stands for."""
        return _STAND_IN.sub(lambda m: self._originals.get(m[0], m[0]), text)

    def hide_all(self, value: Any) -> Any:
        """Return a JSON-like value with the names in its strings hidden."""
        return _walk(value, self.hide)

    def restore_all(self, value: Any) -> Any:
        """Return a JSON-like value with the names in its strings restored."""
        return _walk(value, self.restore)

    def _replace(self, match: re.Match[str]) -> str:
        kind, text = match.lastgroup or "", match[0]
        if kind == "PATH":
            # What is installed and the file's own name tell what ran; the folders tell where.
            cut = text.find(_PACKAGES) if _PACKAGES in text else text.rstrip("/").rfind("/")
            return self._stand_in("PATH", text[:cut]) + text[cut:] if cut > 0 else text
        return self._stand_in(_KINDS.get(kind, kind), text)

    def _stand_in(self, kind: str, name: str) -> str:
        key = f"{kind} {name}"
        if key not in self._stand_ins:
            made = f"{kind}_{len(self._stand_ins) + 1}"
            self._stand_ins[key], self._originals[made] = made, name
        return self._stand_ins[key]


def names_for(settings: Settings, facts: JobFacts) -> Names | None:
    """Return the map for one run on an incident; None where names may be sent."""
    if not settings.model_hide_names:
        return None
    snapshot, diagnosis = facts.incident.snapshot, facts.incident.diagnosis
    hosts = [share.node for share in snapshot.allocation.nodes] + list(diagnosis.suspects.nodes)
    hosts += [e.node or "" for e in diagnosis.evidence]
    hosts += [diagnosis.first_fault.node or ""] if diagnosis.first_fault else []
    hosts += [gpu.node or "" for gpu in diagnosis.suspects.gpus]
    hosts += [fact.node or "" for fact in snapshot.ranks] + [x.node or "" for x in snapshot.lines]
    hosts += [history.node for history in diagnosis.history]
    hosts += [event.node for event in facts.node_events]
    texts = [diagnosis.summary, *(e.text for e in diagnosis.evidence)]
    texts += [line.text for line in snapshot.lines]
    texts += [part for one in snapshot.templates for part in (one.text, one.sample)]
    found = list(placed_names(texts))
    hosts += [name for kind, name in found if kind == "host"]
    users = [name for kind, name in found if kind == "user"]
    return Names(hosts, settings.model_hide_pattern, users)


def placed_names(texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield (host or user, name) for the names that stand where programs print them."""
    places, ordinary = _places()
    for text in texts:
        for kind, pattern in places:
            for match in pattern.finditer(text):
                name = match["name"].rstrip(".")
                if name.lower() not in ordinary and not name.isdigit():
                    yield kind, name


@lru_cache(maxsize=1)
def _places() -> tuple[tuple[tuple[str, re.Pattern[str]], ...], frozenset[str]]:
    content = load_cached(Path(__file__).with_name("name_places.yaml"))
    places = tuple((one["kind"], re.compile(one["pattern"], re.M)) for one in content["places"])
    return places, frozenset(str(word).lower() for word in content["ordinary"])


def _forms(hosts: Iterable[str]) -> set[str]:
    """Return each host as it may stand in a text: whole, without its domain, and inside a template."""
    found: set[str] = set()
    for host in hosts:
        short = host.split(".")[0]
        for name in {host, short}:
            if len(name) < 2 or name.lower() in _places()[1] or name.isdigit():
                continue
            forms = {name, typed(name), mask(name)}
            found |= {
                form for form in forms if re.search(r"[A-Za-z]{2}", re.sub(r"<\w*>", "", form))
            }
    return found


def _any_of(names: Iterable[str]) -> str:
    ordered = sorted(set(names), key=lambda name: (-len(name), name))
    return "|".join(re.escape(name) for name in ordered)


def names_in(settings: Settings, lines: Iterable[SnapshotLine]) -> Names | None:
    """Return the map for a request about a few lines; None where names may be sent."""
    if not settings.model_hide_names:
        return None
    kept = list(lines)
    found = list(placed_names(x.text for x in kept))
    hosts = [x.node or "" for x in kept] + [name for kind, name in found if kind == "host"]
    users = [name for kind, name in found if kind == "user"]
    return Names(hosts, settings.model_hide_pattern, users)


def _walk(value: Any, change: Any) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: _walk(one, change) for key, one in value.items()}
    if isinstance(value, list):
        return [_walk(one, change) for one in value]
    return value
