"""Which patterns cannot tell one digit from another: what they find in a line, they find whatever its numbers."""

from __future__ import annotations

import re
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

_DIGITS = frozenset(range(48, 58))
_WITH_DIGITS = (sre.CATEGORY_DIGIT, sre.CATEGORY_WORD, sre.CATEGORY_NOT_SPACE)
_WITHOUT_DIGITS = (sre.CATEGORY_NOT_DIGIT, sre.CATEGORY_NOT_WORD, sre.CATEGORY_SPACE)


def digit_blind(pattern: str) -> bool:
    """Tell whether every part of a pattern takes all ten digits or none of them.

    Then a search in a line and in the same line with each digit replaced by another finds the same:
    how many digits stand where may count, which ones they are does not.
    """
    try:
        return _blind(parser.parse(pattern))
    except (re.error, RecursionError):
        return False


def _blind(items: Any) -> bool:
    return all(_item(operator, value) for operator, value in items)


def _item(operator: Any, value: Any) -> bool:
    if operator in (sre.LITERAL, sre.NOT_LITERAL):
        return value not in _DIGITS
    if operator is sre.IN:
        digits = _digits(value)
        return digits is not None and digits in (frozenset(), _DIGITS)
    if operator is sre.SUBPATTERN:
        return _blind(value[3])
    if operator in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
        return _blind(value[2])
    if operator is sre.BRANCH:
        return all(_blind(branch) for branch in value[1])
    if operator in (sre.ASSERT, sre.ASSERT_NOT):
        return _blind(value[1])
    if operator is sre.ATOMIC_GROUP:
        return _blind(value)
    # A reference to a group compares digits; what is not known here may.
    return operator in (sre.ANY, sre.AT)


def _digits(members: Any) -> frozenset[int] | None:
    """Return the digits among the members of a class, None where that is not known."""
    found: set[int] = set()
    for operator, value in members:
        if operator is sre.LITERAL:
            found |= {value} & _DIGITS
        elif operator is sre.RANGE:
            found |= _DIGITS & set(range(max(value[0], 48), min(value[1], 57) + 1))
        elif operator is sre.CATEGORY and value in _WITH_DIGITS:
            found |= _DIGITS
        elif operator is not sre.NEGATE and not (
            operator is sre.CATEGORY and value in _WITHOUT_DIGITS
        ):
            return None
    return frozenset(found)
