"""`trainer_state.json` of the Hugging Face Trainer: one object per log call, under `log_history`.

https://github.com/huggingface/transformers/blob/main/src/transformers/trainer_callback.py
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from typing import TYPE_CHECKING, Any

from rerail.lazy_patterns import lazy
from rerail.log_parsers.piece import line_ends
from rerail.log_parsers.series_files.names import meaning_of

if TYPE_CHECKING:
    from rerail.log_parsers.series_files.points import Points

_HISTORY = lazy(rb'"log_history"\s*:\s*\[')
_BETWEEN = lazy(r"[\s,]*")


def has_history(head: bytes) -> bool:
    """Tell whether a JSON file is a trainer's state, given its first bytes."""
    return _HISTORY.search(head) is not None


def read_state(data: bytes, points: Points) -> list[str]:
    """Add the values of the log history to `points`, and return what is damaged.

    The place of a value is the line of its key, so that an editor finds it. A state that is cut, as a
    killed job leaves it, gives what stands before the cut.
    """
    begin = _HISTORY.search(data)
    if begin is None:
        return ["it has no log_history"]
    lines = line_ends(data)
    # Latin-1 keeps one character per byte, so places in the text are places in the file.
    text = data.decode("latin-1")
    decoder = json.JSONDecoder()
    at = begin.end()
    while True:
        at = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]  # it matches nothing, too
        if text[at : at + 1] == "]":
            return []
        try:
            entry, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return [
                f"line {_line(lines, at)}: the log history is cut or damaged; what stands before was read"
            ]
        if isinstance(entry, dict):
            _entry(entry, text[at:end], at, lines, points)
        at = end


def _entry(entry: dict[str, Any], text: str, at: int, lines: Any, points: Points) -> None:
    step = entry.get("step")
    if isinstance(step, bool) or not isinstance(step, int) or abs(step) > 1 << 53:
        return
    for name, value in entry.items():
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            continue
        one = meaning_of(name)
        if one is None or one.meaning in ("step", "time"):
            continue
        number = _number(value)
        if number is not None:
            place = text.find(f'"{name}"')
            points.add(name, _line(lines, at + max(0, place)), step, number, math.nan)


def _number(value: float | str) -> float | None:
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _line(lines: Any, at: int) -> int:
    if isinstance(lines, list):
        return bisect_right(lines, at - 1) + 1
    import numpy as np

    return int(np.searchsorted(lines, at)) + 1
