"""Step series of programs that nobody told rerail about: a counter that grows, and named real numbers beside it.

Lines that are equal but for their numbers are one layout. A layout whose one integer counts up, and that has a
loss by the word beside the number, is a step line; where the counter stands on a line of its own, the numbers
below it belong to it until the next one. Where no word tells a loss, a count that grows evenly and a measured
number beside it are a series too, under the word that stands there; of such a number only that it is none any
more counts. What is mined is never more than `supported`.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from functools import lru_cache

from rerail.cached_yaml import load_cached
from rerail.kept_patterns import kept_pattern
from rerail.late_dataclass import dataclass
from rerail.log_parsers.metrics import MAX_ROWS
from rerail.log_parsers.mined_layouts import (
    LEAST_ROWS,
    PATH,
    TIMES,
    Layout,
    accumulates,
    counts_parts,
    counts_up,
    distinct,
    group,
    is_constant,
    is_real,
    meaning_of,
    real_of,
    split_line,
    time_of,
    whole_of,
)
from rerail.log_parsers.step_numbers import StepRow
from rerail.log_parsers.text import ZERO
from rerail.log_parsers.unnamed_series import COUNTED, UNSTEPPED, repeated, unnamed_layouts

FORM = "mined"
_LEAST_HINTS = 8  # lines that name a loss
_LEARNED, _NEAR = 4_000, 400  # lines that are looked at to learn; those whose surroundings are
_MOST_KEPT = 64
_SAME_STEPS = 0.9
_REACH = 40  # lines below a counter on which its numbers may stand


@lru_cache(maxsize=1)
def _hints() -> tuple[re.Pattern[bytes], tuple[bytes, ...]]:
    """Return what a line that names a loss holds, and the words alone, in small letters."""
    words: list[str] = load_cached(PATH)["hints"]
    plain = tuple(word.replace(r"\b", "").encode() for word in words)
    return kept_pattern(("(?i)" + "|".join(words)).encode()), plain


@dataclass(slots=True)
class StepMiner:
    """Learns the layouts of the step lines of one file, then reads them; `rows` are what was read."""

    layouts: dict[str, Layout] = field(default_factory=dict)
    rows: list[StepRow] = field(default_factory=list)
    kept: dict[int, bytes] = field(default_factory=dict)
    """The first lines whose loss is no number, and the last step line."""
    within_known: bool = False
    """The lines are step lines of a known form, of which only the step could be read."""
    only_times: bool = False
    """Of those step lines all but the time could be read."""
    _words: re.Pattern[bytes] | None = None
    _latest: tuple[int, bytes] | None = None
    _open: dict[int | None, tuple[int, StepRow]] = field(default_factory=dict)
    _stride: int = 1
    _seen: int = 0

    def learn(self, lines: Sequence[bytes], may_name_a_loss: bool = True) -> bool:
        """Find the layouts of step lines among the first lines of a file; tell whether there are any."""
        self.layouts = (_with_a_loss(lines) if may_name_a_loss else {}) or _without_a_word(lines)
        if self.within_known:
            counting = self.layouts.items()
            self.layouts = {
                key: one
                for key, one in counting
                if _counts_steps(one) and (not self.only_times or _is_timed(one))
            }
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
            split = split_line(raw)
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

    def _take(self, number: int, rank: int | None, values: tuple[str, ...], layout: Layout) -> bool:
        """Read one line; tell whether its loss is no number."""
        if layout.counter is not None:
            known = self._open.pop(rank, None)
            if known is not None:
                self._keep(known[1])
            row = _counted(number, rank, values[layout.counter], layout)
            if row is None:
                return False
            self._open[rank] = number, row
        opened = self._open.get(rank)
        if opened is None or number - opened[0] > _REACH:
            return False
        row = opened[1]
        for at, meaning in layout.meanings.items():
            name, value = measure(meaning, real_of(values[at]))
            if value is None or getattr(row, name) is not None:
                continue
            setattr(row, name, value)
            if name == "loss":
                row.line = number
            elif name == "step_time" and number != opened[0]:
                row.time_line = number
        if layout.values:
            at = _telling(values, layout.values)
            row.value, row.value_name = real_of(values[at]), layout.names[at]
        return row.line == number and not math.isfinite(_measured(row) or 0.0)

    def _keep(self, row: StepRow) -> None:
        measured = _measured(row)
        if measured is None:
            return
        self._seen += 1
        if self._seen % self._stride and math.isfinite(measured):
            return
        if len(self.rows) >= MAX_ROWS:
            self.rows = [
                one
                for at, one in enumerate(self.rows)
                if at % 2 == 0 or not math.isfinite(_measured(one) or 0.0)
            ]
            self._stride *= 2
            if len(self.rows) >= MAX_ROWS:
                return
        self.rows.append(row)


def _counted(number: int, rank: int | None, text: str, layout: Layout) -> StepRow | None:
    """Return the row that a count begins, without a step where the epochs are counted in parts."""
    form = FORM if layout.counts_steps else UNSTEPPED if layout.is_training else COUNTED
    if layout.counts_parts:
        epoch = real_of(text)
        return None if epoch is None else StepRow(number, form, rank=rank, epoch=epoch)
    step = whole_of(text)
    return None if step is None else StepRow(number, form, step, rank=rank)


def _measured(row: StepRow) -> float | None:
    return row.loss if row.loss is not None else row.value


def measure(meaning: str, value: float | None) -> tuple[str, float | None]:
    """Return which number of a row a meaning is, and its value in the unit of rows."""
    if meaning == "step_time_ms":
        return "step_time", None if value is None else value / 1000.0
    if meaning == "step_rate":
        return "step_time", 1.0 / value if value else None
    return meaning, value


def _is_timed(one: Layout) -> bool:
    return any(m.startswith(TIMES) for m in one.meanings.values())


def _counts_steps(one: Layout) -> bool:
    return one.counter is not None and one.counts_steps


def beside_known(steps: Sequence[StepRow], mined: Sequence[StepRow]) -> Sequence[StepRow]:
    """Return the rows of a known form with what was mined from their lines, and those of lines that the form leaves out.

    A number that is none may be what the form does not know. Where the steps are not the same, nothing was mined.
    """
    known = {row.line: row for row in steps}
    same = [known[row.line].step == row.step for row in mined if row.line in known]
    if sum(same) < _SAME_STEPS * len(same) or not same:
        return steps
    form = next(known[row.line].form for row in mined if row.line in known)
    for row in mined:
        told = known.get(row.line)
        if told is None:
            known[row.line] = replace(row, form=form)
        elif told.step == row.step:
            timed = told.step_time is not None or told.throughput is not None
            known[row.line] = replace(
                told,
                loss=row.loss,
                value=row.value,
                value_name=row.value_name,
                step_time=told.step_time if timed else row.step_time,
                throughput=told.throughput if timed else row.throughput,
            )
    return [known[line] for line in sorted(known)]


def may_name_a_loss(raw: bytes) -> bool:
    """Tell whether enough lines of a text may name a loss, before it is cut into lines."""
    small = raw.lower()
    return sum(small.count(word) for word in _hints()[1]) >= _LEAST_HINTS


def _with_a_loss(lines: Sequence[bytes]) -> dict[str, Layout]:
    """Return the layouts of lines that name a loss, and of those around them that belong to it."""
    # No hint tells digits apart, and programs print the same lines again and again.
    zeroed = [raw.translate(ZERO) for raw in lines]
    hint = _hints()[0]
    hints = {text for text in set(zeroed) if hint.search(text)}
    hinted = [number for number, text in enumerate(zeroed, 1) if text in hints]
    if len(hinted) < _LEAST_HINTS:
        return {}
    # Step lines with their loss first; only where there are none the lines around them.
    found = _step_layouts(group(lines, _ends(hinted)))
    if not found:
        near = {n for at in _ends(hinted, _NEAR) for n in range(max(1, at - _REACH), at + 1)}
        found = _step_layouts(group(lines, sorted(near)))
    return found


def _without_a_word(lines: Sequence[bytes]) -> dict[str, Layout]:
    """Return the layouts of lines that count and measure, by the heading of their columns or without a name."""
    numbers = repeated(lines)
    if not numbers:
        return {}
    found = group(lines, numbers)
    return _step_layouts(found) or unnamed_layouts(found)


def _telling(values: Sequence[str], of: Sequence[int]) -> int:
    """Return which of a line's measured numbers is to be told: the first that is no number, else the first."""
    return next((at for at in of if not math.isfinite(real_of(values[at]) or 0.0)), of[0])


def _ends(numbers: list[int], most: int = _LEARNED) -> list[int]:
    """Return the first and the last of many numbers."""
    return numbers if len(numbers) <= most else numbers[: most // 2] + numbers[-most // 2 :]


def _rarest(layouts: Iterable[tuple[str, bytes]], sample: Sequence[bytes]) -> re.Pattern[bytes]:
    """Return a pattern of one word of each layout, given with a line: that which the fewest others hold."""
    words = set()
    for key, line in layouts:
        found = {word.encode() for word in re.split(r"[\0\s@]+", key) if word}
        choices = {word for word in found if word in line} or {b""}
        count = {word: sum(word in raw for raw in sample) for word in choices}
        words.add(min(choices, key=lambda word: (count[word], -len(word), word)))
    return re.compile(b"|".join(re.escape(word) for word in sorted(words)))


def _step_layouts(found: dict[str, Layout]) -> dict[str, Layout]:
    """Keep the layouts that carry a counter, and those whose numbers belong to one."""
    common = {key: one for key, one in found.items() if len(one.lines) >= LEAST_ROWS}
    for one in common.values():
        one.counter = _counter(one)
        if one.counter is None:
            one.counter = _parts_of_epochs(one)
            one.counts_parts = one.counter is not None
        one.meanings = _meanings(one)
    whole = {
        k: o for k, o in common.items() if o.counter is not None and "loss" in o.meanings.values()
    }
    if whole:
        best = max(len(one.lines) for one in whole.values())
        return {key: one for key, one in whole.items() if len(one.lines) * 4 >= best}
    return _on_several_lines(common)


def _on_several_lines(common: dict[str, Layout]) -> dict[str, Layout]:
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


def _named(one: Layout) -> int:
    return int(one.counter is not None and meaning_of(one.names[one.counter]) == "step")


def _follows(counter: Layout, values: Layout) -> bool:
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


def _counter(one: Layout) -> int | None:
    """Return which number counts the steps: a named one, one of many (3/100), or the first of the line."""
    choices = []
    for at, name in enumerate(one.names):
        meaning = meaning_of(name)
        # "Train loss 150 7.09": the name belongs to the number behind the count.
        shared = meaning == "loss" and one.names[at + 1 : at + 2] == ("",)
        if one.after_slash[at] and _is_batch_of_epoch(one, at):
            choices.append((False, False, True, -distinct(one, at), at))
            continue
        if one.after_slash[at] or not (meaning in ("step", "epoch", "") or shared):
            continue
        of_many = at + 1 < len(one.names) and one.after_slash[at + 1] and is_constant(one, at + 1)
        # A pid or a rank may stand in front of the count.
        if meaning == "" and not of_many and not all(is_constant(one, i) for i in range(at)):
            continue
        if counts_up(one, at):
            choices.append(
                (meaning != "step", meaning == "epoch", not of_many, -distinct(one, at), at)
            )
    return min(choices)[-1] if choices else None


def _parts_of_epochs(one: Layout) -> int | None:
    """Return which number counts the epochs in parts, where nothing else is counted: "epoch 0.12"."""
    epochs = (at for at, name in enumerate(one.names) if meaning_of(name) == "epoch")
    return next((at for at in epochs if counts_parts(one, at)), None)


def _is_batch_of_epoch(one: Layout, at: int) -> bool:
    """Tell whether the number behind a slash counts, and the one in front of it does not: "Batch 0/1500"."""
    in_front = meaning_of(one.names[at - 1])
    return in_front == "step" and not counts_up(one, at - 1) and counts_up(one, at)


def _meanings(one: Layout) -> dict[int, str]:
    """Return what the numbers of a layout mean, the first of each kind."""
    found: dict[int, str] = {}
    names = list(one.names)
    if one.counter is not None and meaning_of(names[one.counter]) == "loss":
        names[one.counter + 1] = names[one.counter]
    for at, name in enumerate(names):
        meaning = meaning_of(name)
        if (
            at == one.counter
            or one.after_slash[at]
            or meaning in ("", "never", "other", "no_step", "step", "epoch")
            or meaning in found.values()
        ):
            continue
        values = [real_of(line.values[at]) for line in one.lines]
        texts = [line.values[at] for line in one.lines]
        if meaning == "loss" and not is_real(texts):
            continue
        if meaning.startswith("step_time") and accumulates(values):
            continue
        found[at] = meaning
    if not any(meaning.startswith(TIMES) for meaning in found.values()):
        found |= time_of(one, found)
    return found


def unknown_alone(steps: Sequence[StepRow], mined: Sequence[StepRow]) -> Sequence[StepRow]:
    """Return the mined rows, or none where a form is known that reads most of their lines: its count is the step's."""
    known = {row.line for row in steps}
    both = sum(row.line in known for row in mined)
    return [] if 2 * both > len(mined) else mined
