"""Which patterns cannot tell one digit from another: what they find in a line, they find whatever its numbers.

Of those that can, what they may find in a line whose digits are all zeroed.
"""

from __future__ import annotations

import re
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, AnyStr

from rerail.kept_patterns import kept_pattern

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


_ZERO = 48


class _NotKnownError(Exception):
    """What a part of a pattern takes with other digits is not known."""


def zero_image(pattern: AnyStr) -> re.Pattern[AnyStr] | None:
    """Return a pattern that finds something in a line with all digits zeroed wherever `pattern` does in the line.

    It may find more. None where that is not known.
    """
    try:
        return kept_pattern(pattern, change=_zero)
    except (re.error, RecursionError, _NotKnownError):
        return None


def _zero(items: Any) -> None:
    for at, (operator, value) in enumerate(items.data):
        items.data[at] = _zeroed(operator, value)


def _zeroed(operator: Any, value: Any) -> tuple[Any, Any]:
    if operator is sre.LITERAL:
        return operator, _ZERO if value in _DIGITS else value
    if operator is sre.NOT_LITERAL:
        return (sre.ANY, None) if value in _DIGITS else (operator, value)
    if operator is sre.IN:
        return _zeroed_class(value)
    if operator is sre.BRANCH:
        for branch in value[1]:
            _zero(branch)
        return operator, value
    if operator is sre.ASSERT_NOT and not _blind(value[1]):
        # What stands there with other digits may be what must not stand there with zeros.
        return _group(parser.SubPattern(value[1].state, []))
    if operator in _INNER:
        _zero(value if operator is sre.ATOMIC_GROUP else value[_INNER[operator]])
        # What is wider takes more, and may never give it back.
        if operator is sre.ATOMIC_GROUP:
            return _group(value)
        return sre.MAX_REPEAT if operator is sre.POSSESSIVE_REPEAT else operator, value
    if operator not in (sre.ANY, sre.AT, sre.GROUPREF, sre.ASSERT_NOT):
        raise _NotKnownError(operator)
    return operator, value


# Where the pattern inside of an operator stands.
_INNER = {
    sre.SUBPATTERN: 3, sre.MAX_REPEAT: 2, sre.MIN_REPEAT: 2, sre.POSSESSIVE_REPEAT: 2, sre.ASSERT: 1, sre.ATOMIC_GROUP: 0,
}  # fmt: skip


def _group(items: Any) -> tuple[Any, Any]:
    return sre.SUBPATTERN, (None, 0, 0, items)


def _zeroed_class(members: Any) -> tuple[Any, Any]:
    digits = _digits(members)
    if digits is None:
        raise _NotKnownError("a class of which it is not known whether it takes digits")
    if digits in (frozenset(), _DIGITS):
        return sre.IN, members
    if members[0][0] is sre.NEGATE:
        return sre.ANY, None
    return sre.IN, [*members, (sre.LITERAL, _ZERO)]
