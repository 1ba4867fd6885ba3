"""What the names of series mean, read from `names.yaml`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from rerail.cached_yaml import load_cached
from rerail.kept_patterns import kept_pattern

PATH = Path(__file__).with_name("names.yaml")
_LONGEST = 200  # characters of a name that are looked at


@dataclass(frozen=True, slots=True)
class Meaning:
    """One entry: what a name means, the factor to the unit of `StepRow`, its place among its like."""

    meaning: str
    pattern: re.Pattern[str]
    factor: float
    rank: int


@lru_cache(maxsize=1)
def meanings() -> tuple[Meaning, ...]:
    """Return all entries, preferred names first."""
    return tuple(
        Meaning(
            meaning, kept_pattern(entry["name"]), 1e-3 if entry.get("unit") == "ms" else 1.0, at
        )
        for meaning, entries in entries_of(load_cached(PATH)).items()
        for at, entry in enumerate(entries)
    )


def entries_of(content: Any) -> Mapping[str, list[dict[str, Any]]]:
    """Return the entries of the file by meaning."""
    found: Mapping[str, list[dict[str, Any]]] = content["meanings"]
    return found


@lru_cache(maxsize=4096)
def meaning_of(name: str) -> Meaning | None:
    """Return what one name means; None where rerail has no use for it."""
    if len(name) > _LONGEST:
        return None
    key = name.strip().strip('"').lower()
    if key.endswith(tuple(_of_run()["spread"])):
        return None
    key = key.rpartition(_of_run()["between"])[2]
    return next((one for one in meanings() if one.pattern.fullmatch(key)), None)


def run_of(name: str) -> str:
    """Return the name of the run in front of that of a series, or nothing."""
    return name.strip().strip('"').rpartition(_of_run()["between"])[0]


@lru_cache(maxsize=1)
def _of_run() -> Any:
    return load_cached(PATH)["of_run"]


def choose(names: Iterable[tuple[str, int]]) -> dict[str, tuple[str, float]]:
    """Return for each meaning the (name, factor) to read, given (name, number of values) of a file.

    The preferred name counts; of equal ones that with more values, then the first in the alphabet.
    """
    best: dict[str, tuple[tuple[int, int, str], float]] = {}
    for name, count in names:
        one = meaning_of(name)
        if one is None:
            continue
        key = (one.rank, -count, name)
        if one.meaning not in best or key < best[one.meaning][0]:
            best[one.meaning] = key, one.factor
    return {meaning: (key[2], factor) for meaning, (key, factor) in best.items()}
