"""Turns a pattern for lines into one for their skeletons, that finds at least as much.

A skeleton is a line with some bytes deleted. Deleting is a homomorphism of strings, so the
skeletons of the lines that a regular expression describes are themselves described by one: the
expression with those bytes deleted. Where the exact image would be long, or hyperscan could not
take it, a wider one stands for it; a line that the pattern finds has always a skeleton that its
image finds. Anchors and look-around are dropped, for their neighbours may be deleted.
"""

from __future__ import annotations

import re
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from rerail.log_parsers.tallies import DELETED

_GONE = frozenset(DELETED)
_CLASSES = {
    sre.CATEGORY_SPACE: (r"\s", False),
    sre.CATEGORY_NOT_SPACE: (r"\S", True),
    sre.CATEGORY_WORD: (r"\w", True),
    sre.CATEGORY_NOT_WORD: (r"\W", False),
    sre.CATEGORY_NOT_DIGIT: (r"\D", True),
    sre.CATEGORY_DIGIT: ("", True),
}
_ANYTHING = (".*", True)
_NOTHING = ("", True)


def skeleton_pattern(pattern: str) -> str | None:
    """Return a pattern for the skeletons of the lines that `pattern` finds.

    Returns:
        The pattern, for bytes; None where every skeleton has to be taken for a find, because the
        image of the pattern can be empty or has no regular form.
    """
    try:
        tree = parser.parse(pattern)
    except (re.error, RecursionError):
        return None
    text, empty = _sequence(tree, bool(tree.state.flags & re.IGNORECASE))
    return None if empty else text


def _sequence(items: Any, fold: bool) -> tuple[str, bool]:
    """Return the image of a sequence, and whether it can be empty."""
    parts = [_item(operator, value, fold) for operator, value in items]
    return "".join(text for text, _ in parts), all(empty for _, empty in parts)


def _item(operator: Any, value: Any, fold: bool) -> tuple[str, bool]:
    if operator is sre.LITERAL:
        return _literal(value, fold)
    if operator is sre.IN:
        return _class(value, fold)
    if operator is sre.SUBPATTERN:
        _, added, removed, inner = value
        fold = (fold or bool(added & re.IGNORECASE)) and not removed & re.IGNORECASE
        return _group(*_sequence(inner, fold))
    if operator is sre.ATOMIC_GROUP:
        return _group(*_sequence(value, fold))
    if operator is sre.BRANCH:
        images = [_sequence(branch, fold) for branch in value[1]]
        return _group(
            "|".join(dict.fromkeys(text for text, _ in images)), any(e for _, e in images)
        )
    if operator in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
        least, most, inner = value
        return _repeat(least, most, inner, fold)
    if operator in (sre.AT, sre.ASSERT, sre.ASSERT_NOT):
        return _NOTHING
    # Any character, a negated one, a reference to a group.
    return _ANYTHING


def _group(text: str, empty: bool) -> tuple[str, bool]:
    return (f"(?:{text})", empty) if text.strip("|") else _NOTHING


def _repeat(least: int, most: Any, inner: Any, fold: bool) -> tuple[str, bool]:
    text, empty = _sequence(inner, fold)
    if not text:
        return _NOTHING
    if text == ".*":
        return _ANYTHING
    empty = empty or least == 0
    # How often does not matter enough to count: counting costs states.
    if most == 1:
        return f"(?:{text})" + ("?" if empty else ""), empty
    return f"(?:{text})" + ("*" if empty else "+"), empty


def _literal(code: int, fold: bool) -> tuple[str, bool]:
    letter = chr(code)
    if fold and letter.isascii() and letter.isalpha():
        lower, upper = letter.lower(), letter.upper()
        return (f"{upper}?", True) if ord(lower) in _GONE else (f"[{lower}{upper}]", False)
    if fold and letter.lower() != letter.upper():
        return _ANYTHING
    return _NOTHING if code in _GONE else (_escaped(letter), False)


def _class(members: Any, fold: bool) -> tuple[str, bool]:
    body: list[str] = []
    empty = False
    for operator, value in members:
        if operator is sre.CATEGORY and value in _CLASSES:
            text, gone = _CLASSES[value]
            body.append(text)
            empty |= gone
            continue
        if operator is sre.LITERAL:
            codes = range(value, value + 1)
        elif operator is sre.RANGE:
            codes = range(value[0], value[1] + 1)
        else:
            return _ANYTHING
        if codes[-1] > 126:
            return _ANYTHING
        for code in codes:
            both = {chr(code).lower(), chr(code).upper()} if fold else {chr(code)}
            kept = sorted(letter for letter in both if ord(letter) not in _GONE)
            empty |= len(kept) < len(both)
            body += map(_escaped, kept)
    if not any(body):
        return _NOTHING
    return f"[{''.join(body)}]" + ("?" if empty else ""), empty


def _escaped(letter: str) -> str:
    if letter.isascii():
        return re.escape(letter) if letter.isprintable() else f"\\x{ord(letter):02x}"
    return "".join(f"\\x{byte:02x}" for byte in letter.encode())
