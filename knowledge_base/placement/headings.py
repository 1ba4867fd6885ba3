"""What a heading names for the lines near it, whoever prints them: a rank, a process, a GPU or a host.

Headings are data (`headings.yaml`). They are looked up from the line of a fault, upwards, so that
nothing of them costs time where no fault needs them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from rerail.cached_yaml import load_cached
from rerail.domain.evidence import LogLine
from rerail.errors import RuleError
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.statements import HOST
from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy
from rerail.log_parsers.view import LogView

FILE = Path(__file__).with_name("headings.yaml")


@dataclass(frozen=True, slots=True)
class Heading:
    """One form of a heading, and which lines it speaks for."""

    id: str
    heading: re.Pattern[str]
    slots: frozenset[str]
    """The names of its groups: read from its text, as most headings are never held against a line."""
    of: re.Pattern[str] | None = None
    covers: re.Pattern[str] | None = None
    until: re.Pattern[str] | None = None
    counted: re.Pattern[str] | None = None
    reach: int = 0
    below: int = 0
    unlabelled: bool = False
    no_rank: bool = False
    whoever: bool = False
    raw: bool = False
    stream: str | None = None
    matches: tuple[str, ...] = ()
    must_not_match: tuple[str, ...] = ()

    def text(self, view: LogView, number: int) -> str:
        """Return what the patterns are held against: the line behind its label, or all of it with its margin."""
        if self.raw:
            return view.survey.kept.get(number, b"").decode("utf-8", "replace")
        line = view.line(number)
        if line is None:
            return ""
        return line.message if line.label else line.text


@dataclass(frozen=True, slots=True)
class Table:
    """A table below a line with a rank and a value in each row."""

    id: str
    row: re.Pattern[str]
    within: int
    gap: int = 1
    """Lines after which the next row may stand."""
    matches: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Named:
    """What a heading names, the line that names it, and its place among all of its kind if they are counted."""

    slots: dict[str, str]
    line: LogLine
    position: int | None = None

    def number(self, slot: str) -> int:
        """Return a slot as a number."""
        return int(self.slots[slot])


@lru_cache(maxsize=1)
def headings() -> tuple[Heading, ...]:
    """Return the headings of this installation.

    Raises:
        RuleError: for one with an unknown key, naming file, heading and key.
    """
    return tuple(_heading(raw) for raw in load_cached(FILE)["headings"])


@lru_cache(maxsize=1)
def tables() -> tuple[Table, ...]:
    """Return the tables of this installation."""
    return tuple(
        Table(
            raw["id"],
            lazy(raw["row"]),
            raw["within"],
            raw.get("gap", 1),
            tuple(raw["matches"]),
        )
        for raw in load_cached(FILE)["tables"]
    )


_PATTERNS = ("heading", "of", "covers", "until", "counted")
_OTHERS = ("reach", "below", "unlabelled", "no_rank", "whoever", "raw", "stream")
_GROUP = lazy(r"\(\?P<(\w+)>")
_TOLD = frozenset({"id", "why", "source", "matches", "must_not_match"})


def _heading(raw: dict[str, Any]) -> Heading:
    name = str(raw.get("id"))
    if unknown := set(raw) - {*_PATTERNS, *_OTHERS} - _TOLD:
        key = sorted(unknown)[0]
        raise RuleError(f"headings.yaml: heading {name!r}: unknown key {key!r}", subject=name)
    patterns = {k: lazy(raw[k].replace("%host%", HOST)) for k in _PATTERNS if k in raw}
    values: dict[str, Any] = {key: raw[key] for key in _OTHERS if key in raw} | patterns
    values |= {key: tuple(raw.get(key) or ()) for key in ("matches", "must_not_match")}
    return Heading(id=name, slots=frozenset(_GROUP.findall(raw["heading"])), **values)


def complaints() -> list[str]:
    """Return what is wrong with patterns, for `rerail kb lint`: compiling all of them takes too long at every start."""
    found = []
    for form in headings():
        for key in _PATTERNS:
            pattern = getattr(form, key)
            try:
                if pattern is not None:
                    re.compile(pattern.pattern)
            except re.error as error:
                found.append(f"headings.yaml: heading {form.id!r}: {key}: {error}")
    return found


def named_above(case: Case, line: LogLine, slot: str) -> Named | None:
    """Return what the nearest heading with this slot names for a line, or None."""
    view = case.view(line)
    for form in headings():
        if slot in form.slots and (found := _look(form, view, line)) is not None:
            return found
    return None


def _look(form: Heading, view: LogView, line: LogLine) -> Named | None:
    if form.no_rank and line.rank is not None:
        return None
    if (form.unlabelled and line.label) or (form.stream and form.stream != line.stream.value):
        return None
    if form.of is not None and not form.of.search(form.text(view, line.number)):
        return None
    section = view.section(line.number)
    for number in _near(form, view, line):
        if view.section(number) != section:
            return None  # the log of another host or file
        other = view.line(number)
        if other is None or (other.label != line.label and not form.whoever):
            continue
        text = form.text(view, number)
        if match := form.heading.search(text):
            slots = {key: value for key, value in match.groupdict().items() if value is not None}
            return Named(slots, other, _position(form, view, number))
        if form.until is not None and form.until.search(text):
            return None
        if form.covers is not None and number != line.number and not form.covers.search(text):
            return None
    return None


def _near(form: Heading, view: LogView, line: LogLine) -> Iterator[int]:
    if form.below:
        yield from view.between(line.number + 1, line.number + form.below)
        return
    yield from reversed(list(view.between(max(1, line.number - form.reach), line.number)))


def _position(form: Heading, view: LogView, number: int) -> int | None:
    """Return how many of its kind stand above a heading, where the file says how many there are and has them all."""
    if form.counted is None:
        return None
    found: list[int] = []
    told = None
    for one in view.numbers:
        text = form.text(view, one)
        if form.heading.search(text):
            found.append(one)
        elif match := form.counted.search(text):
            told = int(match[1])
    return found.index(number) if told == len(found) else None


def odd_one_out(case: Case, line: LogLine) -> int | None:
    """Return the only rank whose value in the table below a line is not that of all others, or None."""
    view = case.view(line)
    for table in tables():
        values: dict[str, list[int]] = {}
        last = line.number + table.within
        for number in view.between(line.number, view.numbers[-1] if view.numbers else 0):
            if number > last:
                break
            told = view.line(number)
            match = table.row.match(told.message) if told is not None else None
            if match:
                values.setdefault(match["value"], []).append(int(match["rank"]))
                last = number + table.gap
        if len(values) == 2:
            few, many = sorted(values.values(), key=len)
            return few[0] if len(few) == 1 and len(many) > 1 else None
    return None
