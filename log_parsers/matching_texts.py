"""Lines that a pattern matches, made by walking through it at random: what a scanner must find.

Hundreds of patterns compiled into one set can miss what each of them matches; see `scan_library`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from random import Random
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from rerail.log_parsers.scan import Scanner, Signature

_SIGNS = 'aZ0 9_.:-/"|[(x'
_FRONTS = ("", "x ", "node-1: ", "|  ", "[rank3]: ")
_ENDS = ("", " end", " ", ".", " |")
_MORE = (0, 0, 1, 2, 5)
_BEGUN, _GAPS, _LONGEST_GAP, _WORDS = 0.6, " \t-.0", 48, ("", "", " GPU Memory ", "x", " 17 ", ": ")
_CATEGORIES = {
    sre.CATEGORY_DIGIT: r"\d", sre.CATEGORY_NOT_DIGIT: r"\D", sre.CATEGORY_SPACE: r"\s", sre.CATEGORY_NOT_SPACE: r"\S",
    sre.CATEGORY_WORD: r"\w", sre.CATEGORY_NOT_WORD: r"\W",
}  # fmt: skip


def matching_texts(pattern: str, random: Random, count: int) -> Iterator[str]:
    """Yield at most `count` lines that a pattern matches; none where it says something that is not read here."""
    told, tree = re.compile(pattern), parser.parse(pattern)
    for _ in range(count):
        try:
            text = _walk(tree, random)
        except KeyError:
            return
        front = random.choice(_FRONTS)
        if random.random() < _BEGUN:
            # Something like it that comes to nothing, and a gap: automata get lost there, if anywhere.
            begun = _walk(tree, random)
            gap = random.choice(_GAPS) * random.randint(0, _LONGEST_GAP)
            front += f"{begun[: random.randint(0, len(begun))]}{random.choice(_WORDS)}{gap}"
        line = f"{front}{text}{random.choice(_ENDS)}".replace("\n", " ")
        if told.search(line):
            yield line


def missed(
    signatures: Sequence[Signature], scanner: Scanner, *, seed: int, count: int
) -> dict[str, str]:
    """Return the patterns that a scanner misses although they match, each with such a line.

    Args:
        signatures: those that the scanner was made for.
        scanner: it proposes lines, of which it may propose too many.
        seed: of the lines.
        count: lines for each pattern.
    """
    random = Random(seed)  # noqa: S311 - nothing secret
    found: dict[str, str] = {}
    for index, one in enumerate(signatures):
        for line in matching_texts(one.pattern, random, count):
            if all(at != index for _, at in scanner.candidates(f"{line}\n".encode())):
                found.setdefault(one.pattern, line)
    return found


def _walk(items: Any, random: Random) -> str:
    return "".join(_part(operator, value, random) for operator, value in items)


def _part(operator: Any, value: Any, random: Random) -> str:
    if operator is sre.LITERAL:
        return chr(value)
    if operator in (sre.AT, sre.ASSERT, sre.ASSERT_NOT):
        return ""
    if operator is sre.ANY:
        return random.choice(_SIGNS)
    if operator is sre.NOT_LITERAL:
        return random.choice([sign for sign in _SIGNS if ord(sign) != value])
    if operator is sre.IN:
        return _member(value, random)
    if operator is sre.BRANCH:
        return _walk(random.choice(value[1]), random)
    if operator is sre.SUBPATTERN:
        return _walk(value[3], random)
    least, most, items = {sre.MAX_REPEAT: value, sre.MIN_REPEAT: value}[operator]
    # A step of the walk is left out or taken a few times more: nobody prints what may stand 400 times as often.
    most = min(int(most), least + random.choice(_MORE))
    return "".join(_walk(items, random) for _ in range(random.randint(least, max(least, most))))


def _member(members: Any, random: Random) -> str:
    """Return a sign that is in a class of signs."""
    if members[0][0] is sre.NEGATE:
        out = [sign for sign in _SIGNS if not any(_is(sign, one) for one in members[1:])]
        return random.choice(out or ["q"])
    operator, value = random.choice(members)
    if operator is sre.RANGE:
        return chr(random.randint(*value))
    if operator is sre.LITERAL:
        return chr(value)
    return random.choice([sign for sign in _SIGNS if _is(sign, (operator, value))])


def _is(sign: str, member: tuple[Any, Any]) -> bool:
    operator, value = member
    if operator is sre.LITERAL:
        return bool(ord(sign) == value)
    if operator is sre.RANGE:
        return bool(value[0] <= ord(sign) <= value[1])
    return re.fullmatch(_CATEGORIES[value], sign) is not None
