"""Step series of programs that nobody told rerail about: a counter that grows, and named real numbers beside it.

Lines that are equal but for their numbers are one layout. A layout whose one integer counts up, and that has a
loss by the word beside the number, is a step line; where the counter stands on a line of its own, the numbers
below it belong to it until the next one. Times of day, percentages, memory and what a word of
`step_mining.yaml` forbids are no numbers of a step. What is mined is never more than `supported`.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import field
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from rerail.cached_yaml import load_cached
from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy
from rerail.log_parsers.metrics import MAX_ROWS
from rerail.log_parsers.step_numbers import StepRow
from rerail.log_parsers.text import ZERO, strip_escapes

PATH = Path(__file__).with_name("step_mining.yaml")
FORM = "mined"
LEAST_ROWS = 8  # lines of a layout
_LEAST_HINTS = 8  # lines that name a loss
_LONGEST = 1_000  # bytes of a line
_LEARNED, _NEAR = 4_000, 400  # lines that are looked at to learn; those whose surroundings are
_MOST_KEPT = 64
_REACH = 40  # lines below a counter on which its numbers may stand
_MOST_FALLS = 0.2  # share of counts that may begin anew, with an epoch or after a restart
_HINTS = (
    rb"loss",
    rb"nll",
    rb"xent",
    rb"entropy",
    rb"elbo",
    rb"\bcost\b",
    rb"l_pix",
    rb"objective",
    rb"rmse",
)
_HINT = lazy(b"(?i)" + b"|".join(_HINTS))
_WORDS = tuple(hint.replace(rb"\b", b"") for hint in _HINTS)
_MASKED = lazy(
    r"\d{4}[-/]\d\d[-/]\d\d|\d\d/\d\d/\d\d(?:\d\d)?"  # dates
    r"|(?<![\w.])\d{1,3}:\d\d(?::\d\d)?(?:[.,]\d+)?(?:[AP]M)?"  # times of day, and left
    r"|\b\d{1,3}(?:\.\d{1,3}){3}\b|\b0x[0-9a-fA-F]+"  # addresses
    r"|\d+(?:\.\d+)? ?%|\d+(?:\.\d+)? ?[KMGT]i?B?\b(?!/)"  # percentages, memory
    r"|\d+:\d\d\.\d+(?:[AP]M)"
)
_NUMBER = lazy(
    r"(?<![\w.])(?P<v>[-+]?(?:\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?|\.\d+|(?i:nan|inf(?:inity)?)(?![\w])))"
    r"(?P<after>(?:ms|s|batch|it)?(?:/[A-Za-z]\w*)?(?![\w.]))"
)
_LEFT = lazy(r"([A-Za-z_][\w./'-]*(?: [A-Za-z_][\w./'-]*){0,2})[\s:=(\[|>*]*$")
_GLUED = lazy(r"[A-Za-z]+(?:/[A-Za-z]+)?")
_RIGHT = lazy(r"^\s*([A-Za-z]+/[A-Za-z]+|[A-Za-z]+(?: [A-Za-z]+)?(?=\s*(?:[,;|)\]]|$)))")
_RANK = lazy(r"^\s*(?:\[(?:rank|default) ?(\d+)\]:?|(\d{1,5}): (?=\S))\s*")
_VALUES = ("loss", "grad_norm", "learning_rate", "step_time", "throughput")


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    rank: int | None
    values: tuple[str, ...]


@dataclass(slots=True)
class _Layout:
    """One kind of line: the name beside each of its numbers, and what each means once that is known."""

    names: tuple[str, ...]
    after_slash: tuple[bool, ...]
    lines: list[_Line] = field(default_factory=list)
    counter: int | None = None
    meanings: dict[int, str] = field(default_factory=dict)


@dataclass(slots=True)
class StepMiner:
    """Learns the layouts of the step lines of one file, then reads them; `rows` are what was read."""

    layouts: dict[str, _Layout] = field(default_factory=dict)
    rows: list[StepRow] = field(default_factory=list)
    kept: dict[int, bytes] = field(default_factory=dict)
    """The first lines whose loss is no number, and the last step line."""
    _words: re.Pattern[bytes] | None = None
    _latest: tuple[int, bytes] | None = None
    _open: dict[int | None, tuple[int, StepRow]] = field(default_factory=dict)
    _stride: int = 1
    _seen: int = 0

    def learn(self, lines: Sequence[bytes]) -> bool:
        """Find the layouts of step lines among the first lines of a file; tell whether there are any."""
        # No hint tells digits apart, and programs print the same lines again and again.
        zeroed = [raw.translate(ZERO) for raw in lines]
        hints = {text for text in set(zeroed) if _HINT.search(text)}
        hinted = [number for number, text in enumerate(zeroed, 1) if text in hints]
        if len(hinted) < _LEAST_HINTS:
            return False
        # Step lines with their loss first; only where there are none the lines around them.
        numbers = _ends(hinted)
        self.layouts = _step_layouts(_group(lines, numbers))
        if not self.layouts:
            near = {n for at in _ends(hinted, _NEAR) for n in range(max(1, at - _REACH), at + 1)}
            self.layouts = _step_layouts(_group(lines, sorted(near)))
        if not self.layouts:
            return False
        numbers = _ends(list(range(1, len(lines) + 1)))
        shown = [lines[number - 1] for number in numbers]
        self._words = _rarest(
            [(key, lines[one.lines[0].number - 1]) for key, one in self.layouts.items()], shown
        )
        for layout in self.layouts.values():
            layout.lines = []
        return True

    def feed(self, lines: Iterable[bytes], first: int) -> None:
        """Read lines, of which the first has the number `first`."""
        assert self._words is not None  # it has learned
        for number, raw in enumerate(lines, first):
            if self._words.search(raw) is None:
                continue
            split = _split(raw)
            layout = self.layouts.get(split[0]) if split is not None else None
            if split is None or layout is None:
                continue
            self._latest = number, raw
            if self._take(number, split[1], split[2], layout) and len(self.kept) < _MOST_KEPT:
                self.kept[number] = raw

    def finish(self) -> list[StepRow]:
        """Return the rows in order of lines."""
        for _, row in self._open.values():
            self._keep(row)
        self._open = {}
        if self._latest is not None:
            self.kept[self._latest[0]] = self._latest[1]
        self.rows.sort(key=lambda row: row.line)
        return self.rows

    def _take(
        self, number: int, rank: int | None, values: tuple[str, ...], layout: _Layout
    ) -> bool:
        """Read one line; tell whether its loss is no number."""
        if layout.counter is not None:
            known = self._open.pop(rank, None)
            if known is not None:
                self._keep(known[1])
            step = _whole(values[layout.counter])
            if step is None:
                return False
            self._open[rank] = number, StepRow(number, FORM, step, rank=rank)
        opened = self._open.get(rank)
        if opened is None or number - opened[0] > _REACH:
            return False
        row = opened[1]
        for at, meaning in layout.meanings.items():
            name, factor = ("step_time", 1e-3) if meaning == "step_time_ms" else (meaning, 1.0)
            value = _real(values[at])
            if value is None or getattr(row, name) is not None:
                continue
            setattr(row, name, value * factor)
            if name == "loss":
                row.line = number
        return row.line == number and row.loss is not None and not math.isfinite(row.loss)

    def _keep(self, row: StepRow) -> None:
        if row.loss is None:
            return
        self._seen += 1
        if self._seen % self._stride and math.isfinite(row.loss):
            return
        if len(self.rows) >= MAX_ROWS:
            self.rows = [
                one
                for at, one in enumerate(self.rows)
                if at % 2 == 0 or not math.isfinite(one.loss or 0.0)
            ]
            self._stride *= 2
            if len(self.rows) >= MAX_ROWS:
                return
        self.rows.append(row)


def may_learn(raw: bytes) -> bool:
    """Tell whether enough lines of a text may name a loss, before it is cut into lines."""
    small = raw.lower()
    return sum(small.count(word) for word in _WORDS) >= _LEAST_HINTS


def _ends(numbers: list[int], most: int = _LEARNED) -> list[int]:
    """Return the first and the last of many numbers."""
    return numbers if len(numbers) <= most else numbers[: most // 2] + numbers[-most // 2 :]


def _group(lines: Sequence[bytes], numbers: Iterable[int]) -> dict[str, _Layout]:
    """Return the layouts of some lines, given by their numbers."""
    found: dict[str, _Layout] = {}
    for number in numbers:
        split = _split(lines[number - 1])
        if split is None:
            continue
        key, rank, values = split
        layout = found.get(key)
        if layout is None:
            layout = found[key] = _layout_of(key)
        layout.lines.append(_Line(number, rank, values))
    return found


def _rarest(layouts: Iterable[tuple[str, bytes]], sample: Sequence[bytes]) -> re.Pattern[bytes]:
    """Return a pattern of one word of each layout, given with a line: that which the fewest others hold."""
    words = set()
    for key, line in layouts:
        found = {word.encode() for word in re.split(r"[\0\s@]+", key) if word}
        choices = {word for word in found if word in line} or {b""}
        count = {word: sum(word in raw for raw in sample) for word in choices}
        words.add(min(choices, key=lambda word: (count[word], -len(word), word)))
    return re.compile(b"|".join(re.escape(word) for word in sorted(words)))


def _split(raw: bytes) -> tuple[str, int | None, tuple[str, ...]] | None:
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

    key = _NUMBER.sub(slot, _MASKED.sub("@", text))
    if not values:
        return None
    return " ".join(key.split()), rank, tuple(values)


def _layout_of(key: str) -> _Layout:
    parts = key.split("\0")
    names, slashes = [], []
    for at in range(1, len(parts)):
        # A name behind a number ends with the line or at a comma, not at the next number.
        before, behind = parts[at - 1], parts[at] + ("\0" if at + 1 < len(parts) else "")
        glued, right = _GLUED.match(behind), _RIGHT.match(behind)
        left = _LEFT.search(before)
        # "150batch", "1.4s/it": what is written at the number itself says most. "3.41 seconds, 0.001 rate":
        # where commas end the words behind a number, and none stands in front of it, those are its name.
        if glued is not None and (left is None or _meaning(glued[0].lower())):
            name = glued[0]
        elif left is not None:
            name = left[1]
        else:
            name = right[1] if right is not None else ""
        names.append(_known(name.lower()))
        slashes.append(before.rstrip().endswith("/") and at > 1)
    return _Layout(tuple(names), tuple(slashes))


@lru_cache(maxsize=8192)
def _known(name: str) -> str:
    """Return the longest end of some words that is a name with a meaning, else the words."""
    words = name.split(" ")
    if _meaning(name) == "never":
        return name
    for at in range(len(words)):
        part = " ".join(words[at:])
        if _meaning(part):
            return part
    return name


@lru_cache(maxsize=1)
def _patterns() -> dict[str, re.Pattern[str]]:
    names: dict[str, str] = load_cached(PATH)["names"]
    return {meaning: re.compile(pattern) for meaning, pattern in names.items()}


@lru_cache(maxsize=8192)
def _meaning(name: str) -> str:
    patterns = _patterns()
    if patterns["never"].fullmatch(name):
        return "never"
    return next(
        (m for m, pattern in patterns.items() if m != "never" and pattern.fullmatch(name)), ""
    )


def _step_layouts(found: dict[str, _Layout]) -> dict[str, _Layout]:
    """Keep the layouts that carry a counter, and those whose numbers belong to one."""
    common = {key: one for key, one in found.items() if len(one.lines) >= LEAST_ROWS}
    for one in common.values():
        one.counter = _counter(one)
        one.meanings = _meanings(one)
    whole = {
        k: o for k, o in common.items() if o.counter is not None and "loss" in o.meanings.values()
    }
    if whole:
        best = max(len(one.lines) for one in whole.values())
        return {key: one for key, one in whole.items() if len(one.lines) * 4 >= best}
    return _on_several_lines(common)


def _on_several_lines(common: dict[str, _Layout]) -> dict[str, _Layout]:
    """Find a counter on a line of its own with a loss below it, once each."""
    counters = [(k, o) for k, o in common.items() if o.counter is not None]
    losses = [(k, o) for k, o in common.items() if "loss" in o.meanings.values()]
    for loss_key, loss in losses:
        for key, counter in sorted(counters, key=lambda pair: -_named(pair[1])):
            if not _follows(counter, loss):
                continue
            kept = {key: counter, loss_key: loss}
            for other_key, other in common.items():
                if other_key not in kept and other.meanings and _follows(counter, other):
                    other.counter = None
                    kept[other_key] = other
            loss.counter = None
            return kept
    return {}


def _named(one: _Layout) -> int:
    return int(one.counter is not None and _meaning(one.names[one.counter]) == "step")


def _follows(counter: _Layout, values: _Layout) -> bool:
    """Tell whether nearly every count has one line of the other layout below it."""
    heads = [line.number for line in counter.lines]
    ends = [*heads[1:], heads[-1] + _REACH]
    below: dict[int, int] = defaultdict(int)
    at = 0
    for line in values.lines:
        while at < len(heads) and ends[at] <= line.number:
            at += 1
        if at < len(heads) and heads[at] < line.number <= heads[at] + _REACH:
            below[at] += 1
    once = sum(count == 1 for count in below.values())
    return bool(once >= LEAST_ROWS and once >= 0.8 * max(len(heads) - 1, len(values.lines) - 1))


def _counter(one: _Layout) -> int | None:
    """Return which number counts the steps: a named one, one of many (3/100), or the first of the line."""
    choices = []
    for at, name in enumerate(one.names):
        meaning = _meaning(name)
        # "Train loss 150 7.09": the name belongs to the number behind the count.
        shared = meaning == "loss" and one.names[at + 1 : at + 2] == ("",)
        if one.after_slash[at] and _is_batch_of_epoch(one, at):
            choices.append((False, False, True, -_distinct(one, at), at))
            continue
        if one.after_slash[at] or not (meaning in ("step", "epoch", "") or shared):
            continue
        of_many = at + 1 < len(one.names) and one.after_slash[at + 1] and _constant(one, at + 1)
        if meaning == "" and not of_many and at > 0:
            continue
        if _counts_up(one, at):
            choices.append(
                (meaning != "step", meaning == "epoch", not of_many, -_distinct(one, at), at)
            )
    return min(choices)[-1] if choices else None


def _is_batch_of_epoch(one: _Layout, at: int) -> bool:
    """Tell whether the number behind a slash counts, and the one in front of it does not: "Batch 0/1500"."""
    in_front = _meaning(one.names[at - 1])
    return in_front == "step" and not _counts_up(one, at - 1) and _counts_up(one, at)


def _counts_up(one: _Layout, at: int) -> bool:
    by_rank: dict[int | None, list[int]] = defaultdict(list)
    for line in one.lines:
        value = _whole(line.values[at])
        if value is None:
            return False
        by_rank[line.rank].append(value)
    values = max(by_rank.values(), key=len)
    if len(values) < LEAST_ROWS:
        return False
    gaps = [b - a for a, b in pairwise(values)]
    grows, falls = sum(gap > 0 for gap in gaps), sum(gap < 0 for gap in gaps)
    return grows >= 0.5 * len(gaps) and falls <= _MOST_FALLS * len(gaps)


def _constant(one: _Layout, at: int) -> bool:
    return len({line.values[at] for line in one.lines[:200]}) == 1


def _distinct(one: _Layout, at: int) -> int:
    return len({line.values[at] for line in one.lines})


def _meanings(one: _Layout) -> dict[int, str]:
    """Return what the numbers of a layout mean, the first of each kind."""
    found: dict[int, str] = {}
    names = list(one.names)
    if one.counter is not None and _meaning(names[one.counter]) == "loss":
        names[one.counter + 1] = names[one.counter]
    for at, name in enumerate(names):
        meaning = _meaning(name)
        if (
            at == one.counter
            or one.after_slash[at]
            or meaning in ("", "never", "step", "epoch")
            or meaning in found.values()
        ):
            continue
        values = [_real(line.values[at]) for line in one.lines]
        texts = [line.values[at] for line in one.lines]
        if meaning == "loss" and not _is_real(texts):
            continue
        if meaning.startswith("step_time") and _accumulates(values):
            continue
        found[at] = meaning
    return found


def _is_real(texts: Sequence[str]) -> bool:
    """Tell whether numbers are measured: most are written with a point, and they vary."""
    pointed = sum(not text.lstrip("+-").replace(",", "").isdigit() for text in texts)
    return pointed >= 0.8 * len(texts) and len(set(texts)) >= 3


def _accumulates(values: Sequence[float | None]) -> bool:
    """Tell whether a time is that since the start."""
    known = [value for value in values if value is not None]
    return len(known) > 2 and all(b >= a for a, b in pairwise(known)) and known[-1] > 2 * known[0]


def _whole(text: str) -> int | None:
    plain = text.replace(",", "")
    return int(plain) if plain.isdigit() and len(plain) < 16 else None


def _real(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None
