"""Lines that are equal but for their numbers: one layout, with the name beside each number and what it means.

A name is what stands directly in front of a number, or behind it where that is nothing, or the heading of its
column. Times of day, percentages and memory are no numbers of a step.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import field
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from rerail.cached_yaml import load_cached
from rerail.kept_patterns import kept_pattern
from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy
from rerail.log_parsers.held_out import counts_held_out, hints_at_held_out, measures_held_out
from rerail.log_parsers.text import strip_escapes

_Number = TypeVar("_Number", int, float)
PATH = Path(__file__).with_name("step_mining.yaml")
LEAST_ROWS = 8  # lines of a layout
_LONGEST = 1_000  # bytes of a line
_MOST_FALLS = 0.2  # share of counts that may begin anew, with an epoch or after a restart
_FEW_VALUES = 5  # whole numbers that differ more than so are measured
_HEADING = 3  # lines above the first row of a table on which the heading of its columns may stand
TIMES = ("step_time", "step_rate", "throughput")
"""Meanings of numbers that tell how long a step takes, or how the names of such meanings begin."""
_MASKED = lazy(
    r"\d{4}[-/]\d\d[-/]\d\d(?:T\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z\b|[-+]\d\d:?\d\d\b)?)?"  # dates
    r"|\d\d/\d\d/\d\d(?:\d\d)?"
    r"|\b\d{1,2}/[A-Z][a-z]{2}/\d{4}(?::\d\d:\d\d:\d\d)?|\b[A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d:\d\d(?: \d{4})?"
    r"|(?<![\w.])\d{1,3}:\d\d(?::\d\d)?(?:[.,]\d+){0,2}(?:[AP]M)?"  # times of day, and left
    r"|\b\d{1,3}(?:\.\d{1,3}){3}\b|\b0x[0-9a-fA-F]+"  # addresses
    r"|\d+(?:\.\d+)? ?%|\d+(?:\.\d+)? ?[KMGT]i?B?\b(?!/)"  # percentages, memory
    r"|\d+:\d\d\.\d+(?:[AP]M)"
)
_NUMBER = lazy(
    # Leader dots may stand around a number, and the full stop of a sentence behind it; scripts without blanks
    # between words have none around a number either, and a unit in letters that are not Latin ends one.
    r"(?:(?<![\w.])|(?<=\.{3})|(?<=[\u3040-\u30ff\u4e00-\u9fff]))"
    r"(?P<v>[-+]?(?:(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.(?!\s|$|\.)\d*)?(?:[eE][-+]?\d+)?|\.\d+|(?i:nan|inf(?:inity)?)(?![\w])))"
    r"(?P<after>(?:ms|s|batch|it)?(?:/[A-Za-z]\w*)?(?![0-9A-Za-z_]|\.(?!\s|$|\.\.)))"
)
_DECIMAL_COMMA = lazy(r"(?<![\w.,])([-+]?\d+),(\d+(?:[eE][-+]?\d+)?)(?!\w|[.,]\d)")
_NO_THOUSANDS = lazy(r"(?<![\w.,])(?:[-+]?\d+,(?:\d{1,2}|\d{4,})|[-+]?0\d*,\d+)(?!\w|[.,]\d)")
_POINT = lazy(r"(?<![\w.])\d+\.\d")
_LEFT = lazy(r"([^\W\d][\w./'-]*(?: [^\W\d][\w./'-]*){0,3})(?:(?<=\w)@|[\s:=(\[<|>*\"'~#-]*)$")
_ONE_WORD = lazy(r"\s+[^\W\d]+[\s:=]+")
_COUNTER = lazy(r"[^\W\d_]*[^\w\0]*\Z")
_LEADERS = lazy(r"(?:\s?\.){3,}|…+")
_GLUED = lazy(r"[A-Za-z]+(?:/[A-Za-z]+)?")
_RIGHT = lazy(r"^\s*([A-Za-z]+/[A-Za-z]+|[A-Za-z]+(?: [A-Za-z]+)?(?=\s*(?:[,;|)\]]|$)))")
_CELL = lazy(r"\0[^\0\s|,;]*")  # a number of a row, with what is written at it
_IN_BRACKETS = lazy(r"(.*\S) ?[(\[](.+)[)\]]")
_COLUMN = lazy(r"\s*[|,;\t]\s*|\s{2,}")
_RANK = lazy(
    r"^\s*(?:(?:(?:\d{1,6}: ?|\[[a-z]+ ?\d+\]:?|\[\d+,\d+\]<\w+>:?) ?){1,3}(?=\[rank ?\d))?"
    r"(?:\[(?:rank|default) ?(\d+)\]:?|(\d{1,5}): (?=\S))\s*"
)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a layout: its number in the file, the rank of its label, its numbers as they are written."""

    number: int
    rank: int | None
    values: tuple[str, ...]


@dataclass(slots=True)
class Layout:
    """One kind of line: the name beside each of its numbers, and what each means once that is known."""

    names: tuple[str, ...]
    after_slash: tuple[bool, ...]
    units: tuple[str, ...]
    lines: list[Line] = field(default_factory=list)
    counter: int | None = None
    counts_steps: bool = True
    counts_parts: bool = False
    """The counter is no whole number: it tells which part of its epochs the training has done."""
    is_training: bool = True
    meanings: dict[int, str] = field(default_factory=dict)
    values: tuple[int, ...] = ()
    """Measured numbers, of which no word tells what they are."""


def group(lines: Sequence[bytes], numbers: Iterable[int]) -> dict[str, Layout]:
    """Return the layouts of some lines, given by their numbers."""
    found: dict[str, Layout] = {}
    for number in numbers:
        read = split_line(lines[number - 1])
        if read is None:
            continue
        key, rank, values = read
        layout = found.get(key)
        if layout is None:
            layout = found[key] = layout_of(key)
        layout.lines.append(Line(number, rank, values))
    for key, layout in found.items():
        if len(layout.lines) >= LEAST_ROWS and not any(layout.names):
            headed = _headings(lines, layout.lines[0].number, key)
            layout.names, layout.units = headed or (layout.names, layout.units)
    return found


def _headings(
    lines: Sequence[bytes], first: int, key: str
) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Return names and units of the columns of a table without words, from the heading above its first row."""
    cells = len(_CELL.findall(key))
    if cells != key.count("\0"):
        return None
    for raw in reversed(lines[max(0, first - 1 - _HEADING) : first - 1]):
        text = strip_escapes(raw).decode("utf-8", "replace")
        names = [name.strip().lower() for name in _COLUMN.split(text.strip(" |\t")) if name.strip()]
        if len(names) == cells and not any(re.search(r"[-=+]{3}|^\d", name) for name in names):
            split = [_name_and_unit(name) for name in names]
            return tuple(_known(name) for name, _ in split), tuple(unit for _, unit in split)
    return None


def _name_and_unit(heading: str) -> tuple[str, str]:
    """Return the name of a column and the unit in brackets behind it: "time(s)"."""
    found = _IN_BRACKETS.fullmatch(heading)
    if found is None or not _unit().fullmatch(found[2]):
        return heading, ""
    return found[1], found[2]


def split_line(raw: bytes) -> tuple[str, int | None, tuple[str, ...]] | None:
    """Return the layout of a line, the rank that its label tells, and its numbers as they are written."""
    if len(raw) > _LONGEST:
        return None
    text = strip_escapes(raw).decode("utf-8", "replace").rsplit("\r", 1)[-1]
    label = _RANK.match(text)
    rank = None
    if label is not None and label[1] is not None:
        rank, text = int(label[1]), text[label.end() :]
    values: list[str] = []

    def slot(match: re.Match[str]) -> str:
        values.append(match["v"])
        return f"\0{match['after']}"

    text = _glued().sub(r" | \1\2 \3 ", _MASKED.sub("@", text))
    if "," in text and _NO_THOUSANDS.search(text) and not _POINT.search(text):
        text = _DECIMAL_COMMA.sub(r"\1.\2", text)
    key = _NUMBER.sub(slot, text)
    if not values:
        return None
    return " ".join(key.split()), rank, tuple(values)


@lru_cache(maxsize=1)
def _glued() -> re.Pattern[str]:
    """Return a pattern of a word and the count that is glued to it, or of a letter and a long count that begin a line."""
    words = "|".join(load_cached(PATH)["glued"])
    return kept_pattern(rf"(?i)(?:(?<![^\W_])({words})[_-]|^([a-z])(?=\d{{6}}))(\d+)(?!\w|\.\d)")


def layout_of(key: str) -> Layout:
    """Return a layout with the names beside its numbers, in small letters, as far as they mean something."""
    parts = key.split("\0")
    names, slashes, units = [], [], []
    unit = _unit()
    maybe_held_out = hints_at_held_out(key.lower().encode())
    for at in range(1, len(parts)):
        # A name behind a number ends with the line or at a comma, not at the next number.
        before = _LEADERS.sub(" ", parts[at - 1])
        behind = parts[at] + ("\0" if at + 1 < len(parts) else "")
        glued, right = _GLUED.match(behind), _RIGHT.match(behind)
        left = _LEFT.search(before)
        # "150batch", "1.4s/it": what is written at the number itself says most. "3.41 seconds, 0.001 rate":
        # where commas end the words behind a number, and none stands in front of it, those are its name.
        if glued is not None and (left is None or meaning_of(glued[0].lower())):
            name = glued[0]
        elif left is not None:
            name = left[1]
        else:
            name = right[1] if right is not None else ""
        name = name.rstrip("'")  # a key of a printed dict
        names.append(_known(name.lower()))
        if maybe_held_out and _is_held_out("\0".join(parts[:at])):
            names[-1] = f"val {name.lower()}"  # gives no number of a step
        slashes.append(before.rstrip().endswith("/") and at > 1)
        measured = unit.match(behind)
        if measured is not None and at + 1 < len(parts):
            if _is_name_of_next(left is not None, parts[at], name.lower()):
                measured = None
        units.append(measured[0].strip() if measured is not None else "")
    return Layout(tuple(names), tuple(slashes), tuple(units))


def _is_held_out(front: str) -> bool:
    """Tell whether the words in front of a number say that it counts held-out data, or was measured on such."""
    return measures_held_out(front.encode()) or counts_held_out(_COUNTER.sub("", front).encode())


@lru_cache(maxsize=1)
def _unit() -> re.Pattern[str]:
    return kept_pattern(load_cached(PATH)["units"])


@lru_cache(maxsize=8192)
def _known(name: str) -> str:
    """Return the longest end of some words that is a name with a meaning, else the words."""
    words = name.split(" ")
    if meaning_of(name) == "never":
        return name
    ends = [" ".join(words[at:]) for at in range(len(words))]
    # "time per update" is no update.
    told = (end for end in ends if meaning_of(end) not in ("", "other") or _of_time(end, ""))
    return next(told, name)


@lru_cache(maxsize=1)
def _patterns() -> dict[str, re.Pattern[str]]:
    names: dict[str, str] = load_cached(PATH)["names"]
    return {meaning: kept_pattern(pattern) for meaning, pattern in names.items()}


@lru_cache(maxsize=8192)
def meaning_of(name: str) -> str:
    """Return what a name means, "never" for one that gives no number of a step, or nothing."""
    patterns = _patterns()
    if patterns["never"].fullmatch(name):
        return "never"
    return next(
        (m for m, pattern in patterns.items() if m != "never" and pattern.fullmatch(name)), ""
    )


def says_training(key: str) -> bool:
    """Tell whether a word of a layout says that its lines are of training."""
    return _training().search(key.lower()) is not None


@lru_cache(maxsize=1)
def _training() -> re.Pattern[str]:
    return kept_pattern(load_cached(PATH)["training"])


def time_of(one: Layout, known: Collection[int]) -> dict[int, str]:
    """Return the only number that is a time of each step by its name and unit, which no word calls the step time.

    Args:
        one: the layout, its counter known.
        known: the numbers of which a word tells what they are.
    """
    found = {
        at: meaning
        for at, name in enumerate(one.names)
        if at != one.counter and at not in known and not one.after_slash[at]
        and (meaning := _of_time(name, one.units[at]))
        and (is_real([line.values[at] for line in one.lines])
             or (meaning == "step_time_ms" and distinct(one, at) > _FEW_VALUES))
        and not accumulates([real_of(line.values[at]) for line in one.lines])
    }  # fmt: skip
    for names in ("of_a_step", "names"):
        so_called = {at: m for at, m in found.items() if _times()[names].fullmatch(one.names[at])}
        if len(so_called) == 1:
            return so_called
    return found if len(found) == 1 else {}


def _of_time(name: str, unit: str) -> str:
    """Return what a time under a name and before a unit means, or nothing."""
    times = _times()
    if times["of_a_part"].fullmatch(name):
        return ""
    by = ("milliseconds", "seconds") if unit else ("milliseconds_by_name", "seconds_by_name")
    if times[by[0]].fullmatch(unit or name):
        return "step_time_ms"
    return "step_time" if times[by[1]].fullmatch(unit or name) else ""


def _is_name_of_next(left: bool, between: str, name: str) -> bool:
    """Tell whether the word between two numbers is the name of the second: "ce 2.3 sec 0.6", not "took 2.3 sec 16"."""
    return (
        left
        and _ONE_WORD.fullmatch(between) is not None
        and not (_times()["names"].fullmatch(name) and _of_time(name, "s"))
    )


@lru_cache(maxsize=1)
def _times() -> dict[str, re.Pattern[str]]:
    ends = ("names", "seconds_by_name", "milliseconds_by_name")
    return {
        key: kept_pattern(rf"(?:.*[ _./-])?(?:{text})" if key in ends else text)
        for key, text in load_cached(PATH)["times"].items()
    }


def counts_of(one: Layout, at: int) -> list[int]:
    """Return the values of a number on the lines of the rank that has most of them; none where one is not whole."""
    return _of_one_rank(one, at, whole_of)


def _of_one_rank(one: Layout, at: int, read: Callable[[str], _Number | None]) -> list[_Number]:
    by_rank: dict[int | None, list[_Number]] = defaultdict(list)
    for line in one.lines:
        value = read(line.values[at])
        if value is None:
            return []
        by_rank[line.rank].append(value)
    return max(by_rank.values(), key=len)


def counts_up(one: Layout, at: int) -> bool:
    """Tell whether a whole number rises from line to line of a rank, and seldom begins anew."""
    return _rises(counts_of(one, at))


def counts_parts(one: Layout, at: int) -> bool:
    """Tell whether a number of epochs that is written with a point rises so: "epoch 0.12"."""
    return is_real([line.values[at] for line in one.lines]) and _rises(
        _of_one_rank(one, at, real_of)
    )


def _rises(values: Sequence[float]) -> bool:
    if len(values) < LEAST_ROWS:
        return False
    gaps = [b - a for a, b in pairwise(values)]
    grows, falls = sum(gap > 0 for gap in gaps), sum(gap < 0 for gap in gaps)
    return grows >= 0.5 * len(gaps) and falls <= _MOST_FALLS * len(gaps)


def is_constant(one: Layout, at: int) -> bool:
    """Tell whether a number is the same on the first lines."""
    return len({line.values[at] for line in one.lines[:200]}) == 1


def distinct(one: Layout, at: int) -> int:
    """Return how many values a number has."""
    return len({line.values[at] for line in one.lines})


def is_real(texts: Sequence[str]) -> bool:
    """Tell whether numbers are measured: most are written with a point, and they vary."""
    pointed = sum(not text.lstrip("+-").replace(",", "").isdigit() for text in texts)
    return pointed >= 0.8 * len(texts) and len(set(texts)) >= 3


def accumulates(values: Sequence[float | None]) -> bool:
    """Tell whether a time is that since the start."""
    known = [value for value in values if value is not None]
    return len(known) > 2 and all(b >= a for a, b in pairwise(known)) and known[-1] > 2 * known[0]


def whole_of(text: str) -> int | None:
    """Return a whole number as it is written, or None."""
    plain = text.replace(",", "")
    return int(plain) if plain.isdigit() and len(plain) < 16 else None


def real_of(text: str) -> float | None:
    """Return a number as it is written, or None."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None
