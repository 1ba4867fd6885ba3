"""Slowness has to be found again: what only one of several measurements shows is left open.

A health test shares its machine with whatever else runs there, and a process that waits for a core
or a link is slow without being broken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import TypeVar

Who = TypeVar("Who")
ROUNDS = 3


def agreed(rounds: Sequence[Mapping[Who, float]]) -> tuple[dict[Who, float], dict[Who, float]]:
    """Return who was slow in every round, and who in some only; with the median of their ratios."""
    every: dict[Who, list[float]] = {}
    for one in rounds:
        for who, ratio in one.items():
            every.setdefault(who, []).append(ratio)
    slow = {who: round(median(r), 3) for who, r in every.items() if len(r) == len(rounds)}
    unsure = {who: round(median(r), 3) for who, r in every.items() if len(r) < len(rounds)}
    return slow, unsure


def confirm(
    first: Mapping[Who, float], again: Callable[[], Mapping[Who, float]], rounds: int = ROUNDS
) -> tuple[dict[Who, float], dict[Who, float]]:
    """Measure again while somebody was slow in every round so far; return slow and unsure."""
    found = [dict(first)]
    while len(found) < rounds and agreed(found)[0]:
        found.append(dict(again()))
    return agreed(found)
