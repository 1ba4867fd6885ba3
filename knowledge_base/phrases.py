"""Words that a decision rests on, asked for by what they mean; which words those are is data (`phrases.yaml`)."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import AnyStr

from rerail.cached_yaml import load_cached
from rerail.errors import RuleError
from rerail.kept_patterns import kept_pattern
from rerail.late_dataclass import dataclass

FILE = Path(__file__).with_name("phrases.yaml")
_KEYS = frozenset({"pattern", "why", "source", "matches", "must_not_match"})


@dataclass(frozen=True, slots=True)
class Phrase:
    """The pattern of one meaning, with lines that carry it and lines that do not."""

    id: str
    pattern: str
    source: str
    matches: tuple[str, ...]
    must_not_match: tuple[str, ...]


@lru_cache(maxsize=1)
def phrases() -> dict[str, Phrase]:
    """Return the phrases of this installation by their ids.

    Raises:
        RuleError: for one that is not valid, naming phrase and key.
    """
    found = {}
    for name, raw in load_cached(FILE)["phrases"].items():
        if unknown := set(raw) - _KEYS:
            key = sorted(unknown)[0]
            raise RuleError(f"phrases.yaml: {name!r}: unknown key {key!r}", subject=name)
        if missing := {"pattern", "source", "matches", "must_not_match"} - set(raw):
            key = sorted(missing)[0]
            raise RuleError(f"phrases.yaml: {name!r}: no key {key!r}", subject=name)
        examples = (tuple(raw["matches"]), tuple(raw["must_not_match"]))
        found[name] = Phrase(name, raw["pattern"], raw["source"], *examples)
    return found


@lru_cache(maxsize=256)
def phrase(name: str) -> re.Pattern[str]:
    """Return the compiled pattern of one meaning.

    Raises:
        RuleError: when the pattern is not valid.
    """
    return _compiled(name, phrases()[name].pattern)


@lru_cache(maxsize=64)
def phrase_in_bytes(name: str) -> re.Pattern[bytes]:
    """Return the same pattern for lines that are not decoded yet; it matches ASCII words alone."""
    return _compiled(name, phrases()[name].pattern.encode())


def _compiled(name: str, pattern: AnyStr) -> re.Pattern[AnyStr]:
    try:
        return kept_pattern(pattern)
    except re.error as error:
        raise RuleError(f"phrases.yaml: {name!r}: pattern: {error}", subject=name) from None


def says(name: str, text: str) -> bool:
    """Tell whether a text carries a meaning."""
    return phrase(name).search(text) is not None
