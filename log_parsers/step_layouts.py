"""Remembers the layout of step lines, so that a line like the last one is read at one match.

Finding five fields anywhere in a line takes some 25 microseconds; a program prints the same line
every step. From a line that was read field by field a pattern is made in which only the numbers
vary. It gives the same values or none: a line that differs in anything else, by a NaN, a sign or
an exponent for example, is read field by field again.
"""

from __future__ import annotations

import math
import re
import threading
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy
from rerail.log_parsers.line_tables import compiled

_TOKEN = lazy(rb"[-+]?\d+(?:,\d{3})*\.?\d*(?:[eE][-+]?\d+)?")
# Possessive: what a number has taken it never gives back, and is not tried again.
_ANY = rb"[-+]?+\d++(?:,\d{3})*+\.?+\d*+(?:[eE][-+]?\d++)?+"
_LEARN_AFTER = 64  # compiling a pattern pays only where many lines follow
_TRIES = 40
_MOST = 6  # layouts per form
_LONGEST = 2_000
_LONGEST_READ = 4_000
_BLANKS = lazy(rb"( +)")
INTEGERS = frozenset({"step", "rank"})
_MOST_DIGITS = 15  # of a whole number that a column of reals holds exactly
_COUNTED_DIGITS = 18
LARGEST = 10**_COUNTED_DIGITS
"""What counts as far as this counts no steps: a hash, or digits without blanks between them."""
FIELDS = (
    "step",
    "loss",
    "step_time",
    "grad_norm",
    "loss_scale",
    "throughput",
    "epoch",
    "data_time",
    "rank",
    "learning_rate",
)
"""The numbers of a step line, in the order in which `StepRow` holds them."""


_of_thread = threading.local()


@dataclass(frozen=True, slots=True)
class Span:
    """Where a number stands in a line; `milli` if it is in thousandths of its unit."""

    start: int
    end: int
    milli: bool = False


@dataclass(frozen=True, slots=True)
class Laid:
    """Lines that have a known layout: their rows, the places of their forms in `forms`, and their numbers.

    Those stand in the order of `FIELDS`; one that a line does not have is NaN.
    """

    rows: array[int]
    forms: tuple[str, ...]
    which: array[int]
    values: array[float]


class StepLayouts:
    """The layouts of one file's step lines, by form; it begins with those of the files before it."""

    def __init__(self) -> None:
        self._recent: dict[str, list[_Layout]] = _of_thread.__dict__.setdefault("recent", {})
        self._layouts: dict[str, list[_Layout]] = {f: list(one) for f, one in self._recent.items()}
        self._own: Counter[str] = Counter()
        self._seen: Counter[str] = Counter()

    def read(self, form: str, text: bytes) -> list[Any] | None:
        """Return the numbers of a line in the order of `FIELDS`, or None where no layout fits."""
        layouts = self._layouts.get(form)
        if not layouts:
            return None
        for at, layout in enumerate(layouts):
            match = layout.pattern.match(text)
            if match is not None:
                if at:
                    layouts.insert(0, layouts.pop(at))
                return layout.numbers(match)
        return None

    def lines(self, forms: Iterable[str], text: bytes) -> tuple[Laid | None, list[int] | None]:
        """Return the lines of a text that have a known layout, and which have none.

        Args:
            forms: those that are looked for, the first of two that fit counts.
            text: lines; the last one may lack its end.

        Returns:
            Such lines, None where there are none; and the rows of the others, None where no layout is known.
        """
        known = [(form, one) for form in forms for one in self._layouts.get(form, ())]
        if not known:
            return None, None
        loops = compiled()
        if loops is None:
            rows, which, values, others = _lines(text, [one for _, one in known])
        else:
            found = loops.step_lines(text, [one.program for _, one in known])
            rows, which, values, others = (
                array(code, column) for code, column in zip("qidq", found, strict=True)
            )
        forms_of = tuple(form for form, _ in known)
        return (Laid(rows, forms_of, which, values) if rows else None), others.tolist()

    def settled(self, form: str) -> bool:
        """Tell whether no further layouts of a form are learned."""
        return self._seen[form] >= _LEARN_AFTER + _TRIES or self._own[form] >= _MOST

    def learn(self, form: str, text: bytes, spans: dict[str, Span], *, lasts: bool) -> None:
        """Remember the layout of a line that was read field by field, where it `lasts` for other numbers."""
        self._seen[form] += 1
        layouts = self._layouts.setdefault(form, [])
        # Lines that need a new layout every time have none; do not try for ever.
        if not _LEARN_AFTER <= self._seen[form] < _LEARN_AFTER + _TRIES:
            return
        if not lasts or self._own[form] >= _MOST or len(text) > _LONGEST:
            return
        layout = _layout(text, spans)
        if layout is not None:
            self._own[form] += 1
            layouts.insert(0, layout)
            # A layout gives the same values or none, whatever file it was learned from.
            recent = self._recent.setdefault(form, [])
            recent.insert(0, layout)
            del recent[_MOST:]


@dataclass(frozen=True, slots=True)
class _Layout:
    pattern: re.Pattern[bytes]
    places: tuple[int, ...]
    kinds: tuple[Callable[[bytes], int | float | None], ...]
    program: bytes
    """The same for the compiled loops (`_step_layouts.h`)."""

    def numbers(self, match: re.Match[bytes]) -> list[Any]:
        values: list[Any] = [None] * len(FIELDS)
        for place, kind, raw in zip(self.places, self.kinds, match.groups(), strict=True):
            values[place] = kind(raw)
        return values

    def column(self, match: re.Match[bytes]) -> list[float] | None:
        """Return the same with NaN for none; None where a whole number has more digits than a real one holds."""
        for place, raw in zip(self.places, match.groups(), strict=True):
            if FIELDS[place] in INTEGERS and sum(map(str.isdigit, raw.decode())) > _MOST_DIGITS:
                return None
        return [math.nan if value is None else value for value in self.numbers(match)]


def counted(digits: bytes) -> int | None:
    """Return the number of a step, or None for one that is too large to count anything."""
    digits = digits.replace(b",", b"").lstrip(b"0")
    return int(digits or b"0") if len(digits) <= _COUNTED_DIGITS else None


def _thousandth(raw: bytes) -> float:
    return float(raw) / 1000.0


def _kind(name: str, milli: bool, commas: bool) -> Callable[[bytes], int | float | None]:
    plain: Callable[[bytes], int | float | None] = (
        counted if name in INTEGERS else _thousandth if milli else float
    )
    return (lambda raw: plain(raw.replace(b",", b""))) if commas else plain


def _layout(text: bytes, spans: dict[str, Span]) -> _Layout | None:
    wanted = {(span.start, span.end): (name, span.milli) for name, span in spans.items()}
    if len(wanted) < len(spans):
        return None
    parts: list[bytes] = []
    program: list[bytes] = []
    places: list[int] = []
    kinds: list[Callable[[bytes], int | float | None]] = []
    at = 0
    for token in _TOKEN.finditer(text):
        parts.append(_literal(text[at : token.start()]))
        program += _encoded(text[at : token.start()])
        at = token.end()
        field = wanted.pop(token.span(), None)
        if field is None:
            parts.append(_ANY)
            program.append(b"A")
        else:
            places.append(FIELDS.index(field[0]))
            kinds.append(_kind(*field, commas=b"," in token[0]))
            parts.append(b"(" + _like(token[0]) + b")")
            program.append(_wanted(token[0], places[-1], field[0], field[1]))
    # A field that is no number of its own (a NaN, a part of one) cannot be described.
    if wanted:
        return None
    parts.append(_literal(text[at:]))
    program += _encoded(text[at:])
    pattern = re.compile(b"".join(parts) + rb"\Z")
    if not pattern.match(text):
        return None  # commas that part no thousands
    return _Layout(pattern, tuple(places), tuple(kinds), b"".join(program))


def _lines(
    text: bytes, known: Sequence[_Layout]
) -> tuple[array[int], array[int], array[float], array[int]]:
    rows, which, values, others = array("q"), array("i"), array("d"), array("q")
    for row, line in enumerate(text.removesuffix(b"\n").split(b"\n") if text else ()):
        for place, layout in enumerate(known) if len(line) <= _LONGEST_READ else ():
            match = layout.pattern.match(line)
            numbers = None if match is None else layout.column(match)
            if numbers is not None:
                rows.append(row)
                which.append(place)
                values.extend(numbers)
                break
        else:
            others.append(row)
    return rows, which, values, others


def _encoded(text: bytes) -> Iterator[bytes]:
    for part in _BLANKS.split(text):
        if part.startswith(b" "):
            yield b"S"
        elif part:
            yield b"L" + len(part).to_bytes(2, "little") + part


def _wanted(number: bytes, place: int, name: str, milli: bool) -> bytes:
    sign = number[0] if number[:1] in (b"-", b"+") else 0
    kind = 0 if name in INTEGERS else 2 if milli else 1
    exponent = re.search(rb"[eE]", number) is not None
    return b"N" + bytes((sign, b"," in number, b"." in number, exponent, place, kind))


def _literal(text: bytes) -> bytes:
    # Programs pad numbers with spaces.
    return re.sub(rb"(?:\\ )+", rb" ++", re.escape(text))


def _like(number: bytes) -> bytes:
    """Return a pattern for numbers written with the same signs as this one, no others."""
    digits = rb"\d++(?:,\d{3})*+" if b"," in number else rb"\d++"
    fraction = rb"\.\d*+" if b"." in number else b""
    exponent = rb"[eE][-+]?\d++" if re.search(rb"[eE]", number) else b""
    sign = re.escape(number[:1]) if number[:1] in b"-+" else b""
    return sign + digits + fraction + exponent
