"""What stands in front of a line, part by part: times and labels that are known, levels, and what may name the writer.

A part is what stands in brackets, in front of a sign, or a word with its number; of a part the form is told, with what
varies in it: a host, or a number with the word before it.
"""

from __future__ import annotations

import re
from dataclasses import field
from functools import lru_cache

from rerail.cached_yaml import load_cached
from rerail.kept_patterns import kept_pattern
from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy
from rerail.log_parsers.host_names import is_address, is_no_host, is_pod, is_short_name
from rerail.log_parsers.labels import PATH, peel
from rerail.log_parsers.timestamps import Stamp, find_stamp

_MOST_STEPS = 8
FILLERS = frozenset({("level",), ("source",)})
"""The forms of what loggers put in front of a message beside its writer."""
_BEHIND = r"(?:\s{1,9}[|:>-]\s?|[|:>-]\s?|\s{1,9}|$)"

_LEAST_SIGNS = 2

_BRACKETS = lazy(r"(?:\[[^\]\[]{1,60}\]|\([^()]{1,60}\)|<[^<>]{1,60}>):?\s?")

_WORD = r"[A-Za-z0-9](?:[\w./@#-]{0,40}[\w])?(?: \d{1,6})?"

_SEPARATED = lazy(rf"{_WORD}(?:\s?\|\s?|\t|:\s?|\s-\s|\s?>\s)")

_FILE = lazy(r"\.(?:py|cc|cpp|cu|c|h|so|go|rs|java|json|ya?ml|log|out|err|txt|sh)$")

_NAMED = lazy(
    r"(?:(?P<before>[A-Za-z]+) )?(?P<word>[A-Za-z]+(?:_[A-Za-z]+)*)[ =:#_-]?\d{1,6}(?:/\d{1,6}| of \d{1,6})?"
    r"[:,]? {1,20}(?:[|>-] {1,9})?(?=\S)"
)
_SAID_HOST = lazy(
    r"(?:@ ?|on |(?:host|node|hostname)[=:] ?)[A-Za-z0-9][\w.-]{1,80}[:,]?(?: {1,9}[|>-])?(?: {1,9}|\|\s?)(?=\S)"
)

_BARE = lazy(r"(?:[A-Za-z]|\d{1,3}\.\d)[\w.-]{1,80} (?= {0,40}\S)")

# A host with nothing behind it is one where a time, a level, a sign or a counted word follows.
_INNER = lazy(
    r"(?:@ ?|on )?(?:[A-Za-z]|\d{1,3}\.\d)[\w.-]{1,80} {1,4}"
    r"(?=[\[(<#]|\d{4}-\d\d-\d\d|[A-Za-z_]+[ =:#_-]?\d{1,6}(?=[\s|:/,>-])|\d{1,6}[:/|]|[A-Z]{4,8}\b)"
)

_PIECE = lazy(r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?")

_COUNTED = lazy(r"(?P<word>[A-Za-z]+(?:_[A-Za-z]+)*)[-_#]?(?P<number>\d{1,6})")

# A counted name, before its domain: `model.layers.3` is none.
_HOSTLIKE = lazy(r"(?=[\w-]*\d)[a-z][a-z\d-]{1,80}(?:\.[a-z\d.-]{1,80})?")


_FIRST_WORD = lazy(r"[a-z]+")


@dataclass(frozen=True, slots=True)
class Piece:
    """One variable part of a front: a host, or a number of some kind."""

    kind: str
    value: str


@dataclass(frozen=True, slots=True)
class Front:
    """One part of what stands in front of a line: its form with the variable pieces left out, and those pieces."""

    form: tuple[str, ...]
    pieces: tuple[Piece, ...]


KNOWN = Front(("known",), ())
"""A label that is known and tells a rank, behind something that is not."""

_TELLING = frozenset({"rank", "rank2", "local"})


@lru_cache(maxsize=2)
def _kinds(table: str) -> dict[str, str]:
    """Return the kind of number that a word announces, by one of the tables of words of `labels.yaml`."""
    return {word: kind for kind, words in load_cached(PATH)[table].items() for word in words}


@dataclass(slots=True)
class _Reader:
    """Reads one line part by part."""

    text: str
    stamp: Stamp | None
    at: int = 0
    inner: bool = False
    """Something was read already."""
    told: bool = False
    """A label that is known tells the rank."""
    words: bool = False
    """A word of nothing was read: with a second one the message begins."""
    found: list[Front] = field(default_factory=list)

    def step(self) -> bool:
        """Read one part; return False where the front ends."""
        text, stamp = self.text, self.stamp
        while self.at < len(text) and text[self.at] == " ":
            self.at += 1
        if stamp is not None and self.at <= stamp.start <= self.at + 1:
            return self._go_on(behind(stamp, text))
        first = all(one.form in FILLERS or one is KNOWN for one in self.found)
        known = peel(text, self.at, not self.inner, stamp) if first else None
        if known is not None and not known[0].generic:
            self.told = self.told or not _TELLING.isdisjoint(known[1].groupdict())
            if self.found and self.told:
                self.found.append(KNOWN)
            return self._go_on(known[1].end())
        for kind in ("level", "source"):
            if passed := _filled(kind).match(text, self.at):
                self.found.append(Front((kind,), ()))
                return self._go_on(passed.end())
        return self._unknown()

    def _unknown(self) -> bool:
        match = (
            _BRACKETS.match(self.text, self.at)
            or _SEPARATED.match(self.text, self.at)
            or _counted_first(self.text, self.at)
        )
        bare = match is None and (self.inner or _INNER.match(self.text, self.at) is not None)
        if bare:
            match = _SAID_HOST.match(self.text, self.at) or _BARE.match(self.text, self.at)
        front = _taken_apart(match[0]) if match is not None else None
        if match is None or front is None or number_in_group().search(match[0]):
            return False
        if bare and not front.pieces:
            if self.words or match[0].strip().lower() in _kinds("kinds_of_rank"):
                return False
            self.words = True
        if self.told and any(piece.kind == "rank" for piece in front.pieces):
            return False  # behind the label of a rank: its number in a group, or somebody else's
        self.found.append(front)
        return self._go_on(match.end())

    def _go_on(self, at: int) -> bool:
        self.at, self.inner = at, True
        return True


def parts_in_front(text: str, year: int) -> tuple[Front, ...]:
    """Return the parts in front of a line that no pattern knows, behind its time, labels that are known, and levels."""
    reader = _Reader(text, find_stamp(text, year=year))
    for _ in range(_MOST_STEPS):
        if not reader.step():
            break
    return tuple(reader.found)


def behind(stamp: Stamp, text: str) -> int:
    """Return where a line goes on behind its time."""
    end = stamp.end
    while end < len(text) and text[end] in "]:), ":
        end += 1
    return end + 2 if text.startswith("| ", end) else end


@lru_cache(maxsize=2)
def filler(kind: str) -> str:
    """Return the pattern of levels (`level`), or of places in a program (`source`)."""
    raw = load_cached(PATH)["of_loggers"]
    if kind == "level":
        words = "|".join(map(re.escape, raw["levels"]))
        return rf"[\[(<]?(?:{words})[\])>]?{_BEHIND}"
    files, names = ("|".join(map(re.escape, raw[key])) for key in ("files", "names"))
    # A module is named without numbers, as a host is not; glog puts the thread in front of the file.
    return (
        rf"(?:(?:\d{{1,8}} {{1,3}})?[\[(<]?[\w./-]{{1,60}}\.(?:{files})[:(]\d{{1,5}}\)?"
        rf"|[\[(<]?(?:{names}|[a-z_]+(?:\.[a-z_]+){{1,6}}))(?::\d{{1,5}})?[\])>]?{_BEHIND}"
    )


@lru_cache(maxsize=2)
def _filled(kind: str) -> re.Pattern[str]:
    return kept_pattern(filler(kind))


@lru_cache(maxsize=1)
def number_in_group() -> re.Pattern[str]:
    """Return what finds the number that a process has in a group of its own."""
    return kept_pattern(load_cached(PATH)["says_its_number"])


def _counted_first(text: str, at: int) -> re.Match[str] | None:
    """Match a word with its number, and nothing but a gap behind it, where the word counts processes."""
    match = _NAMED.match(text, at)
    if match is None or (
        match["before"] and match["before"].lower() not in _kinds("kinds_of_rank")
    ):
        return None
    kind = _number_kind(match["word"].lower(), (match["before"] or "").lower())
    if kind == "host":  # `node 3` numbers one, node3 is one
        return None if match[0][match.end("word") - match.start()].isdigit() else match
    return match if kind not in (None, "counter") else None


def _number_kind(word: str, before: str = "") -> str | None:
    """Return what a number behind a word counts, or None where the word is not known; `before` stands in front of it."""
    known = _kinds("words").get(word)
    if known == "rank" and before in _kinds("kinds_of_rank"):
        return _kinds("kinds_of_rank")[before]
    if known is None and word.endswith(("_rank", "-rank")):
        known = "rank"  # whichever library counts it
    return known


def _taken_apart(head: str) -> Front | None:
    form: list[str] = []
    pieces: list[Piece] = []
    at, before, further = 0, "", ""
    for match in _PIECE.finditer(head):
        form.append(head[at : match.start()])
        piece = _piece(match[0], before, further)
        at, before, further = match.end(), match[0].lower(), before
        if piece is None:
            form.append(match[0])
            continue
        if piece.kind == "counter":
            return None
        front, _, _ = match[0].rpartition(piece.value)
        form += [front, f"\0{piece.kind}"]
        pieces.append(piece)
    return Front((*form, head[at:]), tuple(pieces))


def _piece(token: str, before: str, further: str) -> Piece | None:
    """Return what varies in a token: nothing, a host, or a number that a word announces."""
    if token.isdigit():
        # Behind a word that is not known it may count anything.
        counts = "number" if not before or not before[-1:].isalpha() else "unknown"
        told = _number_kind(before, further) or counts
        return Piece("node_number" if told == "host" else told, token)
    counted = _COUNTED.fullmatch(token)
    kind = _number_kind(counted["word"].lower()) if counted is not None else None
    if counted is not None and kind is not None:
        if kind == "host":
            return Piece(kind, token)
        return Piece(kind, counted["number"])
    named = _number_kind(before) == "host" and not token.isalpha()
    if is_address(token) or (_HOSTLIKE.fullmatch(token) and (named or looks_counted(token))):
        return Piece("host", token)
    return Piece("short", token) if is_short_name(token) else None


def may_count(token: str) -> bool:
    """Tell whether no word of a counter, a rank or a device begins the token."""
    first = _FIRST_WORD.match(token.lower())
    return first is None or first[0] not in _kinds("words")


def looks_counted(token: str) -> bool:
    """Tell whether a name is that of a machine of a series, and no model, stage, thread or file."""
    first = _FIRST_WORD.match(token)
    known = _kinds("words").get(first[0]) if first else None
    if is_pod(token):
        return True
    if known == "local" and not _COUNTED.fullmatch(token):
        known = None  # gpu-b-09 is a machine, gpu3 is none
    if known in ("counter", "rank", "local") or _FILE.search(token):
        return False
    letters = sum(sign.isalpha() for sign in token)
    if len(token) - letters < _LEAST_SIGNS and letters < _LEAST_SIGNS:
        return False  # w2
    return not is_no_host(token) or "-" in token
