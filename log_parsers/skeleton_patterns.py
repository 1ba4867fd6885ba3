"""Turns a pattern for lines into one for their skeletons, that finds at least as much.

A skeleton is a line with some bytes deleted. Deleting is a homomorphism of strings, so the
skeletons of the lines that a regular expression describes are themselves described by one: the
expression with those bytes deleted. Where the exact image would be long, or hyperscan could not
take it, a wider one stands for it; a line that the pattern finds has always a skeleton that its
image finds.

All bytes that are deleted belong to words. So the end of a line stays its end, and a word keeps
its boundary as long as one byte of it is kept: without them the image of a word like `data` would
be a `t` anywhere. Look-around and the beginning of a line are dropped.
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
_WORD, _OPEN, _OTHER = "word", "open", "other"
_ANYTHING = (".*", True)
_NOTHING = ("", True)
_SINGLE = (sre.ANY, sre.NOT_LITERAL, sre.IN)
_WIDEST = 30  # bytes of a gap; wider ones cost states and tell hardly more than any width


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


def _sequence(items: Any, fold: bool, lead: bool = False, trail: bool = False) -> tuple[str, bool]:
    """Return the image of a sequence, and whether it can be empty.

    `lead` and `trail` tell that a word boundary stands before and behind it that its image does
    not hold as a whole.
    """
    items, parts = list(items), []
    kept = [_is_boundary(items, at) and _stays(items, at, fold) for at in range(len(items))]
    for at, (operator, value) in enumerate(items):
        if operator is sre.AT:
            ends = value in (sre.AT_END, sre.AT_END_STRING)
            parts.append((r"\b" if kept[at] else "$" if ends else "", True))
            continue
        before = lead if at == 0 else _is_boundary(items, at - 1) and not kept[at - 1]
        behind = trail if at == len(items) - 1 else _is_boundary(items, at + 1) and not kept[at + 1]
        part = _item(operator, value, fold, before, behind)
        if part != _ANYTHING or not parts or parts[-1] != _ANYTHING:
            parts.append(part)
    return "".join(text for text, _ in parts), all(empty for _, empty in parts)


def _item(operator: Any, value: Any, fold: bool, lead: bool, trail: bool) -> tuple[str, bool]:
    if operator is sre.LITERAL:
        return _literal(value, fold)
    if operator is sre.IN:
        return _class(value, fold)
    if operator is sre.SUBPATTERN:
        _, added, removed, inner = value
        return _group(*_sequence(inner, _folds(fold, added, removed), lead, trail))
    if operator is sre.ATOMIC_GROUP:
        return _group(*_sequence(value, fold, lead, trail))
    if operator is sre.BRANCH:
        images = [_branch(branch, fold, lead, trail) for branch in value[1]]
        return _group(
            "|".join(dict.fromkeys(text for text, _ in images)), any(e for _, e in images)
        )
    if operator in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
        least, most, inner = value
        return _repeat(least, most, inner, fold)
    if operator in (sre.ASSERT, sre.ASSERT_NOT):
        return _NOTHING
    # Any character, a negated one, a reference to a group.
    return _ANYTHING


def _branch(items: Any, fold: bool, lead: bool, trail: bool) -> tuple[str, bool]:
    """Return the image of one of several branches, with the word boundaries around them all."""
    text, empty = _sequence(items, fold, lead, trail)
    if lead and trail and items and all(_goes(item, fold) for item in items):
        # A word that can go as a whole leaves two neighbours that belong to no word.
        letters = [_literal(value, fold)[0] for _, value in items]
        some = [kept[:-1] + "".join(letters[at + 1 :]) for at, kept in enumerate(letters) if kept]
        return "|".join([*(rf"\b{one}\b" for one in some), r"\B"]), True
    front = lead and _edge(items, fold) == _WORD
    back = trail and _edge(list(items)[::-1], fold, back=True) == _WORD
    return (r"\b" if front else "") + text + (r"\b" if back else ""), empty


def _goes(item: tuple[Any, Any], fold: bool) -> bool:
    operator, _ = item
    return operator is sre.LITERAL and _edge([item], fold) == _OPEN


def _is_boundary(items: Any, at: int) -> bool:
    return bool(items[at] == (sre.AT, sre.AT_BOUNDARY))


def _stays(items: Any, at: int, fold: bool) -> bool:
    """Tell whether a word boundary is one in the skeleton too: a byte of the word is kept."""
    return (
        _edge(items[at + 1 :], fold) == _WORD or _edge(items[:at][::-1], fold, back=True) == _WORD
    )


def _edge(items: Any, fold: bool, *, back: bool = False) -> str:
    """Tell with what a sequence begins, or ends where its items come from `back` to front.

    Returns:
        `_WORD` if it is always a word of which a byte is kept, `_OPEN` if it holds nothing but
        bytes of a word and all of them may go, `_OTHER` otherwise.
    """
    for operator, value in items:
        edge = _edge_of(operator, value, fold, back)
        if edge != _OPEN:
            return edge
    return _OPEN


def _edge_of(operator: Any, value: Any, fold: bool, back: bool) -> str:
    def of(inner: Any, fold: bool = fold) -> str:
        return _edge(list(inner)[::-1] if back else inner, fold, back=back)

    if operator is sre.LITERAL:
        return _edge_of_letters([value], fold)
    if operator is sre.IN:
        return _edge_of_letters(_letters(value), fold)
    if operator is sre.SUBPATTERN:
        _, added, removed, inner = value
        return of(inner, _folds(fold, added, removed))
    if operator is sre.ATOMIC_GROUP:
        return of(value)
    if operator is sre.BRANCH:
        edges = {of(branch) for branch in value[1]}
        return edges.pop() if len(edges) == 1 else _OTHER if _OTHER in edges else _OPEN
    if operator in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
        least, _, inner = value
        edge = of(inner)
        return edge if least or edge == _OTHER else _OPEN
    if operator is sre.AT and value is sre.AT_BOUNDARY:
        return _OPEN
    return _OPEN if operator in (sre.ASSERT, sre.ASSERT_NOT) else _OTHER


def _letters(members: Any) -> list[int | None]:
    """Return the members of a class; None stands for those that are not known one by one."""
    found: list[int | None] = []
    for operator, value in members:
        if operator is sre.LITERAL:
            found.append(value)
        elif operator is sre.RANGE:
            found += range(value[0], min(value[1], 127) + 1)
        elif operator is sre.CATEGORY and value is sre.CATEGORY_WORD:
            found += map(ord, "_za")
        elif operator is sre.CATEGORY and value is sre.CATEGORY_DIGIT:
            found.append(ord("0"))
        else:
            found.append(None)
    return found


def _edge_of_letters(codes: list[int | None], fold: bool) -> str:
    edge = _WORD
    for code in codes:
        if code is None or code > 126 or not (chr(code).isalnum() or code == ord("_")):
            return _OTHER
        if (ord(chr(code).lower()) if fold else code) in _GONE:
            edge = _OPEN
    return edge


def _folds(fold: bool, added: int, removed: int) -> bool:
    return (fold or bool(added & re.IGNORECASE)) and not removed & re.IGNORECASE


def _group(text: str, empty: bool) -> tuple[str, bool]:
    return (f"(?:{text})", empty) if text.strip("|") else _NOTHING


def _repeat(least: int, most: Any, inner: Any, fold: bool) -> tuple[str, bool]:
    text, empty = _sequence(inner, fold)
    if not text:
        return _NOTHING
    if text == ".*":
        # One character of whatever kind, so many times at most, or something that is not known.
        return _gap(most) if len(inner) == 1 and inner[0][0] in _SINGLE else _ANYTHING
    empty = empty or least == 0
    # How often does not matter enough to count: counting costs states.
    if most == 1:
        return f"(?:{text})" + ("?" if empty else ""), empty
    return f"(?:{text})" + ("*" if empty else "+"), empty


def _gap(most: Any) -> tuple[str, bool]:
    return (f".{{0,{most}}}", True) if most <= _WIDEST else _ANYTHING


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
