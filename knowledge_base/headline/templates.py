"""Sentences with slots, read from `headlines.yaml`: what is not known is left out, and never guessed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from rerail.cached_yaml import load_cached
from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy

PATH = Path(__file__).with_name("headlines.yaml")
_SLOT = lazy(r"\{(\w+)\}")
_OPTIONAL = lazy(r"\[([^\[\]]*)\]")


_SOMEBODY = frozenset({"who", "suspect", "teller", "accused", "gpu", "node", "host"})


@dataclass(frozen=True, slots=True)
class Effect:
    """How people are told what a fault did to others: by a mark of their lines' rules, or a trait of their type.

    With neither, it fits always.
    """

    mark: str
    trait: str
    says: str


@lru_cache(maxsize=1)
def templates() -> dict[str, tuple[str, ...]]:
    """Return the sentences of each failure type; of several the first whose slots are known is taken."""
    found = load_cached(PATH)["leaves"]
    return {leaf: (said,) if isinstance(said, str) else tuple(said) for leaf, said in found.items()}


@lru_cache(maxsize=1)
def effects() -> tuple[Effect, ...]:
    """Return what is said of the others, in the order in which it is tried; the last fits always."""
    return tuple(
        Effect(raw.get("mark", ""), raw.get("trait", ""), raw["says"])
        for raw in load_cached(PATH)["effects"]
    )


def fill(template: str, known: Mapping[str, str], otherwise: Mapping[str, str]) -> str:
    """Return the sentence; optional parts with an unknown slot are dropped.

    Args:
        template: text with `{slots}` and `[optional parts]`.
        known: what is known of this failure.
        otherwise: words for slots outside optional parts that are not known.
    """
    kept = _OPTIONAL.sub(
        lambda part: part[1] if all(known.get(slot) for slot in _SLOT.findall(part[1])) else "",
        template,
    )
    return _SLOT.sub(lambda slot: known.get(slot[1]) or otherwise.get(slot[1], ""), kept)


def is_complete(template: str, known: Mapping[str, str]) -> bool:
    """Tell whether every slot outside optional parts is known."""
    return all(known.get(slot) for slot in _SLOT.findall(_OPTIONAL.sub("", template)))


def names_somebody(template: str) -> bool:
    """Tell whether a sentence says of a process, node or GPU what happened to it."""
    return not _SOMEBODY.isdisjoint(_SLOT.findall(template))
