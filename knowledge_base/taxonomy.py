"""The failure taxonomy: leaves, categories, layers and default actions, read from `taxonomy.yaml`."""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from pathlib import Path

from rerail.cached_yaml import load_cached
from rerail.domain.diagnosis import Action, Layer
from rerail.late_dataclass import dataclass

PATH = Path(__file__).with_name("taxonomy.yaml")
NO_FAILURE = "no_failure"


class Kind(StrEnum):
    """Whether a leaf can be the end of the search for a cause."""

    ROOT = "root"
    LOOK_DEEPER = "look_deeper"
    SYMPTOM = "symptom"


@dataclass(frozen=True, slots=True)
class Leaf:
    """One failure type."""

    id: str
    category: str
    meaning: str
    kind: Kind
    layer: Layer
    action: Action
    traits: frozenset[str] = frozenset()
    explains: frozenset[str] = frozenset()
    """The leaves that it can have caused although they were printed before it was told."""


@lru_cache(maxsize=1)
def leaves() -> dict[str, Leaf]:
    """Return every leaf by id, in the order of the file."""
    found: dict[str, Leaf] = {}
    categories = load_cached(PATH)["categories"]
    inside = {c["id"]: [raw["id"] for raw in c["leaves"]] for c in categories}
    for category in categories:
        for raw in category["leaves"]:
            named = raw.get("explains") or category.get("explains") or ()
            found[raw["id"]] = Leaf(
                raw["id"],
                category["id"],
                raw["meaning"],
                Kind(raw["kind"]),
                Layer(raw["layer"]),
                Action(raw["action"]),
                frozenset(category.get("traits") or ()) | frozenset(raw.get("traits") or ()),
                frozenset(leaf for name in named for leaf in inside.get(name, [name])),
            )
    return found


def has(leaf: str | None, trait: str) -> bool:
    """Tell whether the taxonomy says this of a leaf, or of its category; `taxonomy.yaml` explains each trait."""
    known = leaves().get(leaf or "")
    return known is not None and trait in known.traits


@lru_cache(maxsize=1)
def category_titles() -> dict[str, str]:
    """Return the title of each category."""
    return {c["id"]: c["title"] for c in load_cached(PATH)["categories"]}
