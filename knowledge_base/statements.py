"""What programs say about themselves in fixed words: who they are, where they run, how they ended.

A form is data (`statements/*.yaml`): a pattern with named slots for one line, or the patterns of a
block of lines. Reading a job's kept lines against all forms gives statements, each with its slots and
the line that says it. What follows from them is decided elsewhere; here no program is known by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import field
from functools import lru_cache
from pathlib import Path
from typing import Any

from rerail.cached_yaml import load_cached
from rerail.domain.evidence import LogLine
from rerail.errors import RuleError
from rerail.kept_patterns import kept_pattern
from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy
from rerail.log_parsers.digit_blind import digit_blind
from rerail.log_parsers.frames import drawn_over
from rerail.log_parsers.needed_words import Needed, line_may_match, needed_words
from rerail.log_parsers.text import ZERO, clean
from rerail.log_parsers.view import LogView

FOLDER = Path(__file__).with_name("statements")
HOST = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,80}[A-Za-z0-9])?"
"""What `%host%` in a pattern stands for."""
_SLOTS = frozenset({
    "rank", "ranks", "local", "last_local", "task", "tasks", "node", "pid", "gpu", "pci", "address", "lid", "container",
    "place", "world", "nodes", "job_nodes", "per_node", "last_device", "tasks_per_node", "node_rank", "code", "signal",
    "word", "root", "time", "began",
    "pod", "peers", "left", "grid_world", "stages", "tensor_rank", "stage",
    "group", "member",
})  # fmt: skip
_KEYS = frozenset({
    "id", "tells", "about", "literals", "pattern", "block", "told_first", "within", "each", "host_like", "known",
    "not_after", "source", "why", "matches", "must_not_match",
})  # fmt: skip
_KINDS = frozenset(
    {
        "identity",
        "exit",
        "lost_node",
        "set_aside",
        "job",
        "group_rank",
        "own_pod",
        "own_words",
        "pod_event",
        "on_rank",
        "block",
        "own_host",
        "whole_group",
        "introduction",
        "own_rank",
        "counted_pod",
        "bystander",
        "communicator",
        "own_run",
        "looked_at",
        "host_above",
        "rank_below",
        "moved",
        "of_a_rank",
        "evenly",
        "grid",
        "in_grid",
        "in_group",
    }
)
_BLOCK_LINES = 12
_FEW, _REMEMBERED, _LONG = (
    2_000,
    20_000,
    2_000,
)  # lines before it pays to remember; texts; bytes of one
_LAST_WORD = lazy(r"([A-Za-z]+)[ _-]{1,2}$")
_NAMED = lazy(r"\(\?P<(\w+)>")


@dataclass(frozen=True, slots=True)
class Form:
    """One way of saying something. `about`: `writer` prints the line, `self` introduces itself, `subject` is named."""

    id: str
    tells: frozenset[str]
    about: str
    literals: tuple[str, ...]
    texts: tuple[str, ...]
    within: int = _BLOCK_LINES
    told_first: bool = False
    """The first line of a block says what it is about, and stands for it."""
    each: bool = False
    host_like: bool = False
    known: bool = False
    not_after: frozenset[str] = frozenset()
    why: str = ""
    matches: tuple[str, ...] = ()
    must_not_match: tuple[str, ...] = ()

    @property
    def patterns(self) -> tuple[re.Pattern[str], ...]:
        """The pattern of the line, or of each line of a block; compiled when a line first asks for it."""
        return _compiled(self.texts)

    @property
    def begins_line(self) -> bool:
        """Whether it is found at the beginning of a line alone, or of what stands behind its label."""
        return self.texts[0].startswith("^")

    def slots(self, text: str) -> Iterator[dict[str, str]]:
        """Yield the slots of a form of one line: once, or for `each` match."""
        if not line_may_match(_needed(self.texts[0]), text):
            return
        for match in self.patterns[0].finditer(text):
            if self.not_after and _word_before(text, match.start()) in self.not_after:
                continue
            yield _filled(match)
            if not self.each:
                return


@dataclass(frozen=True, slots=True)
class Statement:
    """What one line, or a block that ends with it, says in the slots of its form."""

    form: Form
    slots: dict[str, str]
    line: LogLine

    def number(self, slot: str) -> int | None:
        """Return a slot as a number, or None where it is empty or no number."""
        text = self.slots.get(slot, "")
        return int(text) if text.lstrip("-").isdigit() else None


@dataclass(frozen=True, slots=True)
class Forms:
    """The forms that all lines are held against, with what one of their literals must bring along."""

    items: tuple[Form, ...]
    by_literal: dict[str, tuple[Form, ...]]
    sieve: re.Pattern[bytes]


@lru_cache(maxsize=1)
def forms() -> Forms:
    """Return the forms of this installation.

    Raises:
        RuleError: for a form that is not valid, naming file, form and key.
    """
    found = [form for form in all_forms() if form.literals]
    by_literal: dict[str, list[Form]] = {}
    for form in found:
        for literal in form.literals:
            by_literal.setdefault(literal, []).append(form)
    # The longest first: of two literals that begin at one place the union finds one.
    words = sorted(by_literal, key=lambda word: (-len(word), word))
    sieve = kept_pattern(b"|".join(re.escape(word.encode()) for word in words))
    # What the union finds is the longest word; the forms of those that it contains are asked as well.
    parts = sorted(by_literal)
    asked = {
        word: tuple(form for part in parts if part in word for form in by_literal[part])
        for word in parts
    }
    return Forms(tuple(found), asked, sieve)


def complaints() -> list[str]:
    """Return what is wrong with patterns, for `rerail kb lint`: compiling all of them takes too long at every start."""
    found = []
    for form in all_forms():
        try:
            _compiled(form.texts)
        except re.error as error:
            found.append(f"statements: form {form.id!r}: pattern: {error}")
    return found


@lru_cache(maxsize=1)
def all_forms() -> tuple[Form, ...]:
    """Return the forms of all files, those that are read on the lines of a fault alone included.

    Raises:
        RuleError: for a form that is not valid, naming file, form and key.
    """
    found: list[Form] = []
    for path in sorted(FOLDER.glob("*.yaml")):
        found += parse(load_cached(path), path.name)
    return tuple(found)


def parse(content: Any, file: str) -> list[Form]:
    """Turn the content of one file into forms.

    Raises:
        RuleError: naming file, form and key.
    """
    if not isinstance(content, dict) or not isinstance(content.get("forms"), list):
        raise RuleError(f"{file}: no list named 'forms'", subject=file, hint="rerail kb lint")
    return [_form(raw, file) for raw in content["forms"]]


def _form(raw: dict[str, Any], file: str) -> Form:
    name = raw.get("id") or "?"

    def wrong(text: str) -> RuleError:
        return RuleError(f"{file}: form {name!r}: {text}", subject=str(name), hint="rerail kb lint")

    if unknown := set(raw) - _KEYS:
        raise wrong(f"unknown key {sorted(unknown)[0]!r}")
    tells = raw.get("tells", "identity")
    kinds = frozenset([tells] if isinstance(tells, str) else tells)
    if not kinds <= _KINDS:
        raise wrong(f"tells is none of {', '.join(sorted(_KINDS))}")
    if raw.get("about", "subject") not in ("writer", "subject", "self"):
        raise wrong("about is none of writer, subject, self")
    literals = raw.get("literals") or ()
    if bool(literals) is ("own_words" in kinds) or not all(literals):
        raise wrong("literals is no list of words, one of which stands on the line")
    texts = tuple(raw.get("block") or [raw.get("pattern") or ""])
    slots = {slot for text in texts for slot in _NAMED.findall(text)}
    if odd := {slot.rstrip("0123456789") for slot in slots} - _SLOTS:
        raise wrong(f"unknown slot {sorted(odd)[0]!r}")
    return Form(
        id=name,
        tells=kinds,
        about=raw.get("about", "subject"),
        literals=tuple(literals),
        texts=texts,
        within=raw.get("within", _BLOCK_LINES),
        told_first=bool(raw.get("told_first", False)),
        each=bool(raw.get("each", "own_words" in kinds)),
        host_like=bool(raw.get("host_like", False)),
        known=bool(raw.get("known", False)),
        not_after=frozenset(raw.get("not_after") or ()),
        why=raw.get("why", ""),
        matches=tuple(raw.get("matches") or ()),
        must_not_match=tuple(raw.get("must_not_match") or ()),
    )


@lru_cache(maxsize=1024)
def _compiled(texts: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
    return tuple(kept_pattern(text.replace("%host%", HOST)) for text in texts)


@lru_cache(maxsize=1024)
def _needed(text: str) -> Needed:
    return needed_words(text.replace("%host%", HOST))


@lru_cache(maxsize=64)
def _anywhere(texts: tuple[str, ...]) -> re.Pattern[str]:
    """Return what finds a line of a block behind whatever label."""
    loose = (_NAMED.sub("(?:", text.removeprefix("^")).replace("%host%", HOST) for text in texts)
    return kept_pattern("|".join(f"(?:{one})" for one in loose))


def _word_before(text: str, at: int) -> str:
    """Return the word in front of a place of a text, in small letters; "" where none stands close."""
    found = _LAST_WORD.search(text[max(0, at - 40) : at])
    return found[1].lower() if found else ""


def _filled(match: re.Match[str]) -> dict[str, str]:
    """Return the slots of a match; `node2` is another place of the pattern where a node may stand."""
    return {k.rstrip("0123456789"): v for k, v in match.groupdict().items() if v is not None}


@dataclass(slots=True)
class _Open:
    """A block whose last line is still to come."""

    since: int
    first: LogLine
    slots: dict[str, str] = field(default_factory=dict)


def read(views: Iterable[LogView], known: Forms | None = None) -> list[Statement]:
    """Return what the kept lines of a job say, file by file in the order of their lines."""
    known = known or forms()
    found: list[Statement] = []
    chosen = _Chosen(known)
    for view in views:
        blocks: dict[tuple[str, str], _Open] = {}
        kept = view.survey.kept
        for number in view.numbers:
            asked = chosen.of(kept[number], whole=view.origin.tail is None)
            if asked:
                found += _read_line(view, number, asked, blocks)
    return found


class _Chosen:
    """Which forms a line is held against: of many lines that differ in numbers alone, each form that may match.

    A form that cannot tell digits apart and does not match one of them matches none of them.
    """

    def __init__(self, known: Forms) -> None:
        self._known = known
        self._read = 0
        self._of_text: dict[tuple[object, ...], tuple[Form, ...]] = {}
        # Of two lines that differ in numbers alone one may hold such a word.
        words = (word.encode() for word in known.by_literal)
        self._numbered = [
            (word, image)
            for word in words
            if (image := word.translate(ZERO)) != word or b"0" in word
        ]
        self._may_hold: dict[bytes, tuple[bytes, ...]] = {}

    def of(self, raw: bytes, *, whole: bool) -> tuple[Form, ...]:
        """Return the forms that a line may match, in the order of the words that ask for them.

        Of a `whole` line no label is looked for at its end, so what a form asks for ends where the line ends.
        """
        self._read += 1
        if self._read <= _FEW or len(raw) > _LONG:
            return self._asked(raw)
        zeroed = raw.translate(ZERO)
        words = self._may_hold.get(zeroed)
        if words is None:
            words = tuple(word for word, image in self._numbered if image in zeroed)
            if len(self._may_hold) >= _REMEMBERED:
                self._may_hold.clear()
            self._may_hold[zeroed] = words
        key = (whole, zeroed, *(word for word in words if word in raw))
        chosen = self._of_text.get(key)
        if chosen is None:
            asked, text = self._asked(raw), clean(raw)
            whole = whole and not drawn_over(raw)
            chosen = tuple(
                form for form in asked if not _blind(form) or _may_match(form, text, whole)
            )
            if len(self._of_text) >= _REMEMBERED:
                self._of_text.clear()
            self._of_text[key] = chosen
        return chosen

    def _asked(self, raw: bytes) -> tuple[Form, ...]:
        asked = (form for word in self._words(raw) for form in self._known.by_literal[word])
        return tuple({form.id: form for form in asked}.values())

    def _words(self, raw: bytes) -> dict[str, None]:
        """Return the words of a line in their order, those that begin within another as well."""
        found: dict[str, None] = {}
        hit = self._known.sieve.search(raw)
        while hit:
            found[hit[0].decode()] = None
            hit = self._known.sieve.search(raw, hit.start() + 1)
        return found


@lru_cache(maxsize=1024)
def _blind(form: Form) -> bool:
    return all(digit_blind(text.replace("%host%", HOST)) for text in form.texts)


def _may_match(form: Form, text: str, whole: bool) -> bool:
    if form.begins_line and not whole:
        return True  # a label at the end would let the message end before the line does
    # A label may stand in front of what begins a line.
    alone = len(form.texts) == 1 and not form.begins_line
    return (form.patterns[0] if alone else _anywhere(form.texts)).search(text) is not None


def _read_line(
    view: LogView, number: int, asked: Iterable[Form], blocks: dict[tuple[str, str], _Open]
) -> Iterator[Statement]:
    text = view.text(number) if asked else None
    if text is None:
        return
    for form in asked:
        if len(form.texts) > 1:
            # Labels are read only where a line of the block may stand behind them.
            if not _anywhere(form.texts).search(text):
                continue
            line = view.line(number)
            if line is not None and (ended := _of_block(form, line, blocks)) is not None:
                yield Statement(form, ended.slots, ended.first if form.told_first else line)
            continue
        line = None
        for slots in form.slots(text):
            line = view.line(number)
            if line is not None:
                yield Statement(form, slots, line)
        if line is None and form.begins_line and (line := view.line(number)) and line.label:
            for slots in form.slots(line.message):
                yield Statement(form, slots, line)


def _of_block(form: Form, line: LogLine, blocks: dict[tuple[str, str], _Open]) -> _Open | None:
    """Take a line into the block that it opens, continues or ends; return one that ends, with all its slots."""
    key = (form.id, line.label)
    *inner, last = form.patterns
    begun = blocks.get(key)
    if begun is not None and line.number - begun.since > form.within:
        begun = None
        del blocks[key]
    if begun is not None and (match := last.search(line.message)):
        del blocks[key]
        begun.slots |= _filled(match)
        return begun
    for pattern in inner:
        if match := pattern.search(line.message):
            begun = blocks.setdefault(key, _Open(line.number, line))
            begun.slots |= _filled(match)
            begun.since = line.number
    return None
