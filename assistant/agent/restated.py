"""Whether a sentence only restates a line, and whether it tells somebody to do something.

A restatement holds the words of one line, in their order and without a gap, besides fillers ("the line
says"); what stands around them in that line must not turn their sense (not, if, failed to). That loses
many a true sentence, and lets no sentence through that says more than the line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from rerail.cached_yaml import load_cached
from rerail.domain.incident import SnapshotLine

_TOKEN = re.compile(r"[A-Za-z0-9_]+(?:[-'./:][A-Za-z0-9_]+)*")
_NEAR = 3  # words around a quotation that may turn its sense
_PLACE = re.compile(
    r"(?i)\b(?:on|from|at|of|by|in)?\s*(?P<kind>rank|node|host)\s*[=#:]?\s*(?P<value>[\w.-]*\w)\b"
)
_CLAUSE = re.compile(r"(?<=[.!?;])\s+|\n+|\s+(?:and|then|so)\s+(?=[a-z]+\b)")


@lru_cache(maxsize=1)
def _wordings() -> dict[str, Any]:
    content: dict[str, Any] = load_cached(Path(__file__).with_name("wordings.yaml"))
    sets = {name: frozenset(content[name]) for name in ("filler", "turning", "imperative")}
    obliging = "|".join(re.escape(words) for words in content["obliging"])
    return {
        **sets,
        "obliging": re.compile(rf"(?i)\b(?:{obliging})\b"),
        "command": [re.compile(pattern) for pattern in content["command"]],
    }


def instructs(text: str) -> bool:
    """Tell whether a sentence, or a part of it, tells somebody to do something, or holds a command."""
    words = _wordings()
    if words["obliging"].search(text) or any(one.search(text) for one in words["command"]):
        return True
    for clause in _CLAUSE.split(text):
        first = _TOKEN.search(clause.lower().removeprefix("then ").removeprefix("now "))
        if first is not None and first[0] in words["imperative"]:
            return True
    return False


def quotes(text: str, lines: Sequence[SnapshotLine]) -> bool:
    """Tell whether one of the lines holds what the sentence says, in its words and order."""
    return any(_quotes(text, line) for line in lines)


def _quotes(text: str, line: SnapshotLine) -> bool:
    said = _words(_without_place(text, line))
    printed = _tokens(line.text)
    if not said or len("".join(said)) < 3:
        return False
    places = [at for at, word in enumerate(printed) if word not in _wordings()["filler"]]
    kept = [printed[at] for at in places]
    for start in range(len(kept) - len(said) + 1):
        if kept[start : start + len(said)] == said:
            first, last = places[start], places[start + len(said) - 1]
            around = printed[max(0, first - _NEAR) : first] + printed[last + 1 : last + 1 + _NEAR]
            inside = printed[first : last + 1]
            turned = _wordings()["turning"] & set(around + [w for w in inside if w not in said])
            if not turned or _wordings()["turning"] & set(said) >= turned:
                return True
    return False


def _without_place(text: str, line: SnapshotLine) -> str:
    """Take out who printed the line, where the line itself was printed by that one."""

    def keep(match: re.Match[str]) -> str:
        value = match["value"].lower()
        own = str(line.rank) if match["kind"].lower() == "rank" else (line.node or "").lower()
        return " " if own and value == own else match[0]

    return _PLACE.sub(keep, text, count=1)


def _words(text: str) -> list[str]:
    return [word for word in _tokens(text) if word not in _wordings()["filler"]]


def _tokens(text: str) -> list[str]:
    return [word.lower() for word in _TOKEN.findall(text)]
