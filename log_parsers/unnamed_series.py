"""Series without a word that tells a loss: a count that grows evenly, and measured numbers beside it.

Lines that come again and again, equal but for their numbers, count something where one whole number of them
rises by the same amount nearly each time. A number beside it that has a point, varies, carries no unit and
is not named as something else is measured once for each count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from rerail.lazy_patterns import lazy
from rerail.log_parsers.mined_layouts import (
    LEAST_ROWS,
    Layout,
    counts_of,
    is_real,
    meaning_of,
    says_training,
    whole_of,
)

COUNTED = "counted"
"""The form of rows whose counter no word calls a step; they tell nothing of how far the training came."""
UNSTEPPED = "counted in training"
"""The same, where other words of the line say that it is one of training."""
STEPLESS = frozenset({COUNTED, UNSTEPPED})
_OF_TRAINING = frozenset({"step", "epoch", "loss", "learning_rate", "grad_norm"})
_WINDOWS, _WINDOW = 8, 60  # pieces of a file that are looked at, lines of each
_EVENLY = 0.8  # share of the counts that rise by the usual amount
_MOST_FALLS = 0.05  # share of the counts that begin anew
_BEYOND = 10**9  # counts from here on are clocks and sizes
_ANY_NUMBER = lazy(rb"[-+]?\d[\d.]*(?:[eE][-+]?\d+)?|\b(?i:nan|inf)\b")


def repeated(lines: Sequence[bytes]) -> list[int]:
    """Return the numbers of those lines of a sample that come often, equal but for two or more numbers."""
    numbers = _sample(len(lines))
    images = [_ANY_NUMBER.sub(b"\0", lines[number - 1]) for number in numbers]
    often = {
        image
        for image, count in Counter(images).items()
        if count >= LEAST_ROWS and image.count(b"\0") > 1
    }
    return [number for number, image in zip(numbers, images, strict=True) if image in often]


def _sample(count: int) -> list[int]:
    """Return the numbers of all lines, or of pieces that lie evenly in a longer file."""
    if count <= _WINDOWS * _WINDOW:
        return list(range(1, count + 1))
    stride = (count - _WINDOW) // (_WINDOWS - 1)
    return [1 + at * stride + row for at in range(_WINDOWS) for row in range(_WINDOW)]


def unnamed_layouts(found: dict[str, Layout]) -> dict[str, Layout]:
    """Return the layouts that count evenly and measure something, those that most lines have."""
    kept = {key: one for key, one in found.items() if len(one.lines) >= LEAST_ROWS and _reads(one)}
    for key, one in kept.items():
        one.is_training = says_training(key) or any(
            map(_OF_TRAINING.__contains__, map(meaning_of, one.names))
        )
    most = max((len(one.lines) for one in kept.values()), default=0)
    return {key: one for key, one in kept.items() if len(one.lines) * 4 >= most}


def _reads(one: Layout) -> bool:
    """Find the counter and the measured numbers of a layout; tell whether it has both."""
    counters = [at for at in range(len(one.names)) if _may_count(one, at)]
    named = [at for at in counters if meaning_of(one.names[at]) in ("step", "epoch")]
    steps = [at for at in named if meaning_of(one.names[at]) == "step"] or named
    if not counters:
        return False
    one.counter = (steps or counters)[0]
    one.counts_steps = bool(steps)
    one.values = tuple(
        at
        for at, name in enumerate(one.names)
        if at != one.counter
        and not one.after_slash[at]
        and not one.units[at]
        and meaning_of(name) == ""
        and is_real([line.values[at] for line in one.lines])
    )
    return bool(one.values)


def _may_count(one: Layout, at: int) -> bool:
    """Tell whether a number rises by the same amount nearly each time, once each."""
    if (
        one.after_slash[at]
        or one.units[at]
        or meaning_of(one.names[at]) not in ("", "step", "epoch")
    ):
        return False
    values = counts_of(one, at)
    if len(values) < LEAST_ROWS or any(
        (whole_of(ln.values[at]) or 0) >= _BEYOND for ln in one.lines
    ):
        return False
    gaps = Counter(b - a for a, b in pairwise(values))
    ((usual, count),) = gaps.most_common(1)
    falls = sum(many for gap, many in gaps.items() if gap < 0)
    evenly = count >= _EVENLY * (len(values) - _WINDOWS)
    return usual > 0 and evenly and falls <= _MOST_FALLS * len(values)
