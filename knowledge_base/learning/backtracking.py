"""A lint for patterns that may take exponential time: repeats in repeats, alternatives in repeats.

Hyperscan and re2 are linear, but a hit is confirmed by Python's `re`, which backtracks.
"""

from __future__ import annotations

import re
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as sre_parser  # type: ignore[attr-defined]
from typing import Any

_REPEATS = (sre.MAX_REPEAT, sre.MIN_REPEAT)
MANY = 1_000
MOST_GAPS = 12
MOST_LENGTH = 600


def backtracking_complaints(pattern: str) -> list[str]:
    """Return why a pattern is too dangerous or too large to run on every line; empty when it is not."""
    if len(pattern) > MOST_LENGTH:
        return [f"longer than {MOST_LENGTH} characters"]
    try:
        tree = sre_parser.parse(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return [f"no pattern: {error}"]
    found: list[str] = []
    gaps = _walk(tree, 0, found)
    if gaps > MOST_GAPS:
        found.append(f"{gaps} open repeats; at most {MOST_GAPS}")
    return list(dict.fromkeys(found))


def _walk(tree: Any, depth: int, found: list[str]) -> int:
    gaps = 0
    for kind, value in tree:
        if kind in _REPEATS:
            low, high, inner = value
            wide = high == sre.MAXREPEAT or high - low > 1
            if high == sre.MAXREPEAT and _any_character(inner):
                found.append("an unbounded repeat of any character; bound it: .{0,120}")
            if high != sre.MAXREPEAT and high > MANY:
                found.append(f"a repeat of up to {high}")
            if wide and depth:
                found.append("a repeat within a repeat")
            gaps += wide and _many(inner)
            gaps += _walk(inner, depth + (1 if wide else 0), found)
        elif kind is sre.SUBPATTERN:
            gaps += _walk(value[-1], depth, found)
        elif kind is sre.BRANCH:
            if depth:
                found.append("alternatives within a repeat")
            gaps += max((_walk(branch, depth, found) for branch in value[1]), default=0)
        elif kind in (sre.ASSERT, sre.ASSERT_NOT, sre.GROUPREF, sre.ATOMIC_GROUP):
            found.append("look-around, back-reference or atomic group")
    return gaps


def _any_character(inner: Any) -> bool:
    return len(inner) == 1 and inner[0][0] is sre.ANY


def _many(inner: Any) -> bool:
    """Tell whether what is repeated can match many kinds of characters."""
    return len(inner) == 1 and inner[0][0] in (sre.ANY, sre.IN, sre.NOT_LITERAL)
