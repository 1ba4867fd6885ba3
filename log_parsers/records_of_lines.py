"""Records of several lines without labels: one line of a record names the rank that another one is of.

The records are data (`records_of_lines.yaml`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from rerail.cached_yaml import load_cached
from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy

FILE = Path(__file__).with_name("records_of_lines.yaml")


@dataclass(frozen=True, slots=True)
class Record:
    """One kind of record."""

    id: str
    begins: tuple[str, ...]
    named: re.Pattern[str]
    until: re.Pattern[str]
    reach: int
    matches: tuple[str, ...]
    must_not_match: tuple[str, ...]


@lru_cache(maxsize=1)
def records() -> tuple[Record, ...]:
    """Return the records of this installation."""
    return tuple(
        Record(
            raw["id"],
            tuple(raw["begins"]),
            lazy(raw["named"]),
            lazy(raw["until"]),
            raw["reach"],
            tuple(raw["matches"]),
            tuple(raw["must_not_match"]),
        )
        for raw in load_cached(FILE)["records"]
    )


@lru_cache(maxsize=1)
def _begins() -> tuple[str, ...]:
    return tuple(word for one in records() for word in one.begins)


def rank_of_record(message: str, number: int, text: Callable[[int], str | None]) -> int | None:
    """Return the rank that another line of the same record names for a line, or None."""
    if not message.startswith(_begins()):
        return None
    for one in records():
        if not message.startswith(one.begins):
            continue
        for above in range(number - 1, max(0, number - 1 - one.reach), -1):
            line = text(above) or ""
            if match := one.named.search(line):
                return int(match["rank"])
            if one.until.search(line):
                break
    return None
