"""Which words a text must hold for a pattern to match it: most patterns need not even be compiled for a log.

Read off the text of the pattern, in a fiftieth of the time that compiling it takes. What is not sure is
not claimed: a pattern of which nothing is known may match anywhere.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Container, Sequence
from typing import Any

from rerail.lazy_patterns import lazy

_TOKEN = lazy(
    r"(?P<text>[A-Za-z0-9 _:,;'\"/<>=@%&~`!#-]+)|\\(?P<escape>.)|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])"
    r"|\((?P<open>\?(?:P<\w+>|[a-zA-Z-]*:|<?[=!]|[a-zA-Z]+\)|))?|(?P<close>\))|(?P<bar>\|)"
    r"|(?P<times>(?:[*+?]|\{\d*,?\d*\})[?+]?)|(?P<other>.)",
    re.DOTALL,
)
Needed = str | list["Needed"] | None
"""What a text must hold: a word; or a list that begins with what holds of the rest.

`all` of them, `any` of them, or in `small` letters the one word behind it. None where nothing is known.
"""


class _Held:
    """A text that is asked for words; most that it does not hold are told by their first four bytes."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self.fours = _fours(text)

    def __contains__(self, word: object) -> bool:
        raw = str(word).encode()
        four = _four(raw)
        return (four is None or four in self.fours) and raw in self._text


class _Short:
    """A text of which no more is known than that it may hold any word that is too short to be found in an index."""

    def __contains__(self, word: object) -> bool:
        return _four(str(word).encode()) is None


def _four(word: bytes) -> int | None:
    """Return the first four bytes of a word as a number."""
    return int.from_bytes(word[:4], sys.byteorder) if len(word) >= 4 else None


def _fours(text: bytes) -> set[int]:
    """Return all groups of four bytes that stand in a text."""
    found: set[int] = set()
    for at in range(min(4, len(text))):
        whole = (len(text) - at) // 4 * 4
        found.update(memoryview(text)[at : at + whole].cast("I"))
    return found


class WordIndex:
    """Which of thousands of patterns a text may match: only those are asked of which it begins a word.

    To make it takes as long as to start a program; `parts` are what may be kept of it.
    """

    def __init__(self, needed: Sequence[Needed], parts: Sequence[list[Any]] | None = None) -> None:
        self._needed = needed
        self._always: list[int] = []
        self._by_four: dict[int, list[int]] = {}
        self._by_small: dict[int, list[int]] = {}
        if parts is not None:
            self._always, fours, places, small, of_small = parts
            self._by_four = dict(zip(fours, places, strict=True))
            self._by_small = dict(zip(small, of_small, strict=True))
            return
        short = _Short()
        self._always = [at for at, one in enumerate(needed) if holds(one, short, short)]
        for at, one in enumerate(needed):
            self._add(at, one, self._by_four)

    def parts(self) -> list[list[Any]]:
        """Return what another index of the same words is made of."""
        tables = self._by_four, self._by_small
        return [self._always, *(list(one) for table in tables for one in (table, table.values()))]

    def _add(self, at: int, needed: Needed, table: dict[int, list[int]]) -> None:
        if isinstance(needed, str):
            if (four := _four(needed.encode())) is not None:
                table.setdefault(four, []).append(at)
        elif needed is not None:
            for one in needed[1:]:
                self._add(at, one, self._by_small if needed[0] == "small" else table)

    def may_match(self, text: bytes) -> list[int]:
        """Return, in order, the places of the patterns whose words a text holds."""
        held, small = _Held(text), _Held(text.lower())
        asked = set(self._always)
        for table, there in ((self._by_four, held), (self._by_small, small)):
            for four in table.keys() & there.fours:
                asked.update(table[four])
        return [at for at in sorted(asked) if holds(self._needed[at], held, small)]


def holds(needed: Needed, text: Container[str], small: Container[str]) -> bool:
    """Tell whether a text, given also in small letters, holds what is needed."""
    if needed is None:
        return True
    if isinstance(needed, str):
        return needed in text
    kind = needed[0]
    if kind == "small":
        return needed[1] in small
    for one in needed[1:]:
        if holds(one, text, small) is (kind == "any"):
            return kind == "any"
    return kind == "all"


def line_may_match(needed: Needed, line: str) -> bool:
    """Tell whether a line holds what is needed; of small letters only where ASCII has them all."""
    small: Container[str] = line.lower() if line.isascii() else _ANYTHING
    return holds(needed, line, small)


def one_of(needed: Needed) -> tuple[str, ...]:
    """Return words of which a text holds one at least; none where small letters count, or nothing is known."""
    if needed is None or isinstance(needed, str):
        return (needed,) if needed else ()
    parts = [one_of(one) for one in needed[1:]] if needed[0] != "small" else [()]
    if needed[0] == "all":
        return next(filter(None, parts), ())
    return tuple(word for part in parts for word in part) if all(parts) else ()


class _Anything:
    def __contains__(self, word: object) -> bool:
        return True


_ANYTHING = _Anything()


class _UnclearError(Exception):
    """The pattern says something that is not read here."""


class _Group:
    """What is known of an open group: what its branches need, and the one that is read."""

    def __init__(self, *, folds: bool, counts: bool) -> None:
        self.folds, self.counts = folds, counts
        self.branches: list[Needed] = []
        self.parts: list[Needed] = []
        self.run = ""

    def end_run(self) -> None:
        """Take the signs that stand together as a word."""
        if self.run:
            self.parts.append(["small", self.run.lower()] if self.folds else self.run)
            self.run = ""

    def end_branch(self) -> None:
        """Take what the branch needs."""
        self.end_run()
        parts = sorted((one for one in self.parts if one is not None), key=_tells, reverse=True)
        self.branches.append(["all", *parts] if len(parts) > 1 else parts[0] if parts else None)
        self.parts = []

    def needed(self) -> Needed:
        """Return what the whole group needs: nothing where one of its branches needs nothing."""
        self.end_branch()
        if not self.counts or None in self.branches:
            return None
        return ["any", *self.branches] if len(self.branches) > 1 else self.branches[0]


def _tells(needed: Needed) -> int:
    """Return how long a word is found at least: what tells most is asked first."""
    if needed is None or isinstance(needed, str):
        return len(needed or "")
    lengths = [_tells(one) for one in needed[1:]]
    return max(lengths) if needed[0] == "all" else min(lengths)


def needed_words(pattern: str) -> Needed:
    """Return what a text must hold where a pattern matches."""
    try:
        return _read(pattern)
    except _UnclearError:
        return None


def _read(pattern: str) -> Needed:
    groups = [_Group(folds=False, counts=True)]
    ended: list[
        Needed
    ] = []  # the group that ends here; what follows may say that it can be left out
    for token in _TOKEN.finditer(pattern):
        kind, group = token.lastgroup, groups[-1]
        if kind == "times":
            if token[0][0] == "+" or token[0][1:2] in _ONCE:
                group.parts += ended
            elif not ended:
                group.run = group.run[:-1]
            group.end_run()
            ended = []
            continue
        group.parts += ended
        ended = []
        if kind == "text":
            group.run += token[0]
        elif kind == "escape":
            _escaped(group, token["escape"])
        elif kind == "bar":
            group.end_branch()
        elif kind == "close":
            if len(groups) == 1:
                raise _UnclearError
            ended = [groups.pop().needed()]
        elif kind == "open" or token[0] == "(":
            group.end_run()
            _open(groups, token["open"] or "", first=token.start() == 0)
        else:
            group.end_run()
    if len(groups) != 1:
        raise _UnclearError
    groups[0].parts += ended
    return groups[0].needed()


_ONCE = tuple("123456789")


def _escaped(group: _Group, sign: str) -> None:
    if not sign.isascii() or sign in "xuUN01234567":
        raise _UnclearError
    if sign.isalnum() or sign.isspace():
        group.end_run()
    else:
        group.run += sign


def _open(groups: list[_Group], form: str, *, first: bool) -> None:
    outer = groups[-1]
    if form.endswith(")"):
        # Flags of the whole pattern: only those of letters and of lines, in front of all.
        if not first or set(form[1:-1]) - set("ims"):
            raise _UnclearError
        outer.folds = "i" in form
        return
    flags = form[1:-1] if form.endswith(":") else ""
    if form == "?" or set(flags) - set("ims"):
        raise _UnclearError
    # What is looked for ahead or behind stands in the text as well; what may not be there needs nothing.
    groups.append(_Group(folds=outer.folds or "i" in flags, counts=not form.endswith("!")))
