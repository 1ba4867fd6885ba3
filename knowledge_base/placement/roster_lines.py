"""What one line of a roster says: the words in front of its values tell what these are (`rosters.yaml`).

A line may tell of one process, or of several in parts that are alike: `rank 0 gn-1; rank 1 gn-2`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from functools import lru_cache
from pathlib import Path

from rerail.cached_yaml import load_cached
from rerail.domain.evidence import LogLine
from rerail.kept_patterns import kept_pattern
from rerail.knowledge_base.phrases import phrase
from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy
from rerail.log_parsers.host_names import is_address, is_local, is_short_name, looks_like_host

FILE = Path(__file__).with_name("rosters.yaml")
_MOST_RANKS = 1 << 17
_MOST_WORDS = 4  # of a name in front of a value
_MOST_PARTS = 4_096
# A word, or a range of numbers: 4~7.
_WORD = lazy(r"\d+~\d+|[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?")
_RANGE = lazy(
    r"(?<![\w.~-])\[?(?P<a>\d{1,6}) ?(?:-|\.\.|~|\u2013| to ) ?(?P<b>\d{1,6})\]?(?![\w:/.-]|~\d)"
)
_LIST = lazy(r"(?<![\w.-])\[?\d{1,6}(?:,\s?\d{1,6})+\]?(?![\w/.-]|:\d)")
_JOINED = lazy(r"(?P<name>[A-Za-z]+)[_-]?(?P<number>\d{1,6})")
_NAME = lazy(r"[A-Za-z0-9](?:[\w.-]{0,120}[A-Za-z0-9])?")
_BETWEEN = lazy(r"[\s=:\"'#@(]{0,8}")
_APART = lazy(r"[_\s-]+")
_PARTS = (lazy(r";"), lazy(r"\|"), lazy(r",\s?(?![^\[]*\])"), lazy(r"\s{2,}|\t"))


@dataclass(frozen=True, slots=True)
class Part:
    """What a line, or a part of one, says of a rank, of the ranks of a host, or of a node."""

    about: tuple[str, ...]
    """The kinds of its values, in their order, with the names in front of the numbers and the host."""
    of: str
    """What is numbered: a `rank`, a `range` of ranks, or a `node`."""
    first: int
    last: int
    sure: bool
    host: str | None
    named: str
    """How the host is named: `host` or `preposition` by the words in front of it, or nothing."""
    strange: bool
    """It holds words that tell of something else."""
    pid: int | None
    local: int | None
    gpu: int | None


@dataclass(frozen=True, slots=True)
class Entry:
    """What a part of a line says, and the line."""

    part: Part
    line: LogLine


@dataclass(frozen=True, slots=True)
class _Data:
    sure: frozenset[str]
    kinds: dict[str, str]
    """What the value behind a name is, by the name."""
    other_ranks: frozenset[str]
    counting: frozenset[str]
    not_own: frozenset[str]
    plain: frozenset[str]
    not_in: re.Pattern[str]
    sieve: re.Pattern[bytes]


@lru_cache(maxsize=1)
def _data() -> _Data:
    raw = load_cached(FILE)
    sure = frozenset([*raw["rank"]["sure"], *raw["ranges"], *raw["node"]])
    counted = frozenset(raw["rank"]["counted"])
    kinds = dict.fromkeys(raw["others"], "other")
    for kind in ("gpu", "pid", "local", "preposition", "host", "node"):
        kinds |= dict.fromkeys(raw[kind], kind)
    kinds |= dict.fromkeys((sure | counted) - frozenset(raw["node"]), "rank")
    lasts = {name.split()[-1] for name in [*sure, *counted, *raw["node"], *raw["host"]]}
    words = "|".join(sorted(lasts, key=lambda one: (-len(one), one)))
    # Behind one of the names a number, or a range that is no date, or a list.
    sieve = kept_pattern(
        rf"(?i)(?:^|[^a-z])(?:{words})[\s=:\"'#_\[(-]{{0,4}}\d+"
        r"|(?<![\d:.-])\d{1,6} ?(?:-|\.\.| to ) ?\d{1,6}(?![\d:.-])|\d{1,6}, ?\d{1,6}, ?\d".encode()
    )
    return _Data(
        sure,
        kinds,
        frozenset(raw["other_ranks"]),
        frozenset(raw["counting"]),
        frozenset(raw["not_own"]),
        frozenset(raw["plain"]) | {word for name in kinds for word in name.split()},
        lazy(raw["not_in"]),
        sieve,
    )


def told_at(raw: bytes) -> bytes | None:
    """Return the words by which a line may tell of a process, with its number, before it is read; or None."""
    match = _data().sieve.search(raw)
    return match[0] if match is not None else None


def parts_told(text: str, known: frozenset[str]) -> list[Part]:
    """Return what a text tells, one for each of its parts that are alike; none where it speaks of somebody else."""
    if _data().not_in.search(text):
        return []
    text = phrase("logger-in-front").sub("", text)
    text = _LIST.sub(_as_range, _RANGE.sub(r"\g<a>~\g<b>", text))
    for sign in _PARTS:
        parts = [part for part in sign.split(text, _MOST_PARTS) if part.strip()]
        if len(parts) < 2:
            continue
        read = [(part, _part(part, known)) for part in parts]
        told = [entry for _, entry in read if entry is not None and entry.host is not None]
        alike = told and all(one.about == told[-1].about for one in told)
        # A part that has a number or a host alone shows that the sign stands between the two.
        whole = not any(
            _tells_half(part, known) for part, one in read if one is None or not one.host
        )
        if alike and whole and len(told) > 1 and len({one.first for one in told}) == len(told):
            return told
    one = _part(text, known)
    return [one] if one is not None else []


def entries(parts: list[Part], line: LogLine) -> list[Entry]:
    """Return the entries of a line; none where a label says that another rank wrote it."""
    return [
        Entry(part, line) for part in parts if part.of != "rank" or line.rank in (None, part.first)
    ]


def _tells_half(part: str, known: frozenset[str]) -> bool:
    """Tell whether a part of a line holds a range, or a host."""
    words = [match[0] for match in _WORD.finditer(part)]
    return any("~" in word or word in known or looks_like_host(word) for word in words)


def _as_range(match: re.Match[str]) -> str:
    """Return numbers that follow each other as a range; others as they stand."""
    numbers = [int(number) for number in match[0].strip("[]").split(",")]
    whole = numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    return f"{numbers[0]}~{numbers[-1]}" if whole else match[0]


@dataclass(slots=True)
class _Words:
    """The words of a part of a line, read one after the other."""

    known: frozenset[str]
    found: dict[str, list[tuple[str, str]]]
    about: list[str]
    names: list[str]
    left: list[str]
    """Words that are neither names of values nor plain."""

    def read(self, word: str, between: str) -> None:
        """Take one word, behind what stands between it and the one before."""
        data = _data()
        kind, name = _kind(self.names, data) if _BETWEEN.fullmatch(between) else ("", "")
        if "@" in between:
            kind, name = "preposition", "@"
        kind = _what(kind, name, word)
        if kind:
            self._take(kind, name, word)
            return
        joined = _JOINED.fullmatch(word)
        counted = joined["name"].lower() if joined is not None and not self.names else ""
        if joined is not None and counted in ("rank", "r"):
            self._take("rank", counted, joined["number"])
        elif joined is not None and data.kinds.get(counted) == "host":
            self._take("numbered", counted, word)
        elif word in self.known or looks_like_host(word) or is_short_name(word):
            self._take("", "", word)
        elif "~" in word:
            self._take("other" if self.names else "range", "", word)
        elif any(letter.isdigit() for letter in word):
            self.names = []
        else:
            plain = _APART.split(word.lower())
            if not ("." in word or data.plain.issuperset(plain)):
                self.left.append(word)
            self.names = [*(self.names if _APART.fullmatch(between) else ()), *plain][-_MOST_WORDS:]

    def _take(self, kind: str, name: str, word: str) -> None:
        self.found[kind].append((word, name))
        self.about.append(
            f"{kind} {name}" if kind in ("rank", "host", "preposition", "node") else kind
        )
        self.names = []


def _kind(names: list[str], data: _Data) -> tuple[str, str]:
    """Return what stands behind some words, and the longest name among them that tells it."""
    for first in range(len(names)):
        name = " ".join(names[first:])
        kind = data.kinds.get(name, "")
        before = names[first - 1] if first else ""
        others = before in data.not_own or (before and before not in data.plain)
        if (
            before in data.counting
            or (kind == "rank" and before in data.other_ranks)
            or (kind == "host" and others)
        ):
            return "other", name
        if kind:
            return kind, name
    return "", ""


def _what(kind: str, name: str, word: str) -> str:
    """Return what a word is behind a name that announces a kind; nothing where it cannot be that."""
    number = word.isdigit() and len(word) < 8
    if kind == "rank":
        return "range" if "~" in word else kind if number else ""
    if kind in ("pid", "local", "gpu", "node"):
        return kind if number else ""
    if kind == "host" and number:
        return "node"
    if kind in ("host", "preposition"):
        plain = word.isdigit() or word.lower() in _data().plain or is_local(word)
        fits = not plain and "~" not in word and _NAME.fullmatch(word) is not None
        # Behind `on` a host may be called by a name without a number.
        fits = fits and (kind == "host" or looks_like_host(word) or word.islower())
        return kind if fits else ""
    return kind if any(letter.isdigit() for letter in word) else ""


def _part(text: str, known: frozenset[str]) -> Part | None:
    """Return what a part of a line says; None where it tells of nobody, or of several."""
    words = _Words(known, defaultdict(list), [], [], [])
    end = 0
    for match in _WORD.finditer(text):
        words.read(match[0], text[end : match.start()])
        end = match.end()
    found, left = words.found, words.left
    for name, _ in found.pop("numbered", ()):
        others = found["host"] or found["preposition"] or found[""] or left
        found["node" if others else ""].append((_digits(name) if others else name, ""))
    of, numbered = _numbered(found)
    hosts = found["host"] or found["preposition"] or found[""]
    if all(is_address(host) for host, _ in hosts):  # a name beside it tells more
        hosts = [one for one in found[""] if not is_address(one[0])] or hosts
    elif len(hosts) > 1:
        hosts = [one for one in hosts if not is_address(one[0])]
    named = next((kind for kind in ("host", "preposition") if found[kind]), "")
    if not hosts and len(left) == 1 and (of == "node" or (of == "range" and numbered[0][1])):
        hosts, named, left = [(left[0], "")], "host", []
    several = len({host for host, _ in hosts}) > 1 or any(
        len(set(found[k])) > 1 for k in ("pid", "local")
    )
    if len(numbered) != 1 or several:
        return None
    first, _, last = numbered[0][0].partition("~")
    if max(int(first), int(last or 0)) > _MOST_RANKS or int(last or first) < int(first):
        return None

    def number(kind: str) -> int | None:
        return int(found[kind][0][0]) if found[kind] else None

    return Part(
        tuple(words.about), of, int(first), int(last or first), numbered[0][1] in _data().sure,
        hosts[0][0] if hosts else None, named, bool(left), number("pid"), number("local"), number("gpu"),
    )  # fmt: skip


def _numbered(found: dict[str, list[tuple[str, str]]]) -> tuple[str, list[tuple[str, str]]]:
    """Return what a part numbers, and the numbers: ranges of ranks, ranks, or nodes."""
    for of in ("range", "rank", "node"):
        told = found[of]
        sure = [one for one in told if one[1] in _data().sure]
        if told:
            return of, sure or told
    return "", []


def _digits(name: str) -> str:
    return "".join(letter for letter in name if letter.isdigit())
