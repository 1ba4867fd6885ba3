"""The time on step lines of a known form that no form reads, found by the words beside it.

Which number it is, is mined from some lines; all others are searched for what stands directly beside it there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from rerail.late_dataclass import dataclass
from rerail.log_parsers.mined_layouts import TIMES
from rerail.log_parsers.piece import Piece, rows_of
from rerail.log_parsers.step_layouts import FIELDS
from rerail.log_parsers.step_mining import StepMiner, measure
from rerail.log_parsers.step_numbers import StepRow, number_of
from rerail.log_parsers.step_rows import Columns

_NUMBER = rb"((?:\d{1,3}(?:,\d{3})+(?:\.\d*)?|\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
_FEW = 400  # lines that are looked at
_NEAR = 24  # characters beside the number
_MOSTLY = 0.9  # share of those lines on which what stands there must find the same number


@dataclass(frozen=True, slots=True)
class LineTimes:
    """What stands beside the time of a step, and what the number there means."""

    pattern: re.Pattern[bytes]
    meaning: str

    def of(self, piece: Piece, first_line: int) -> dict[int, tuple[str, float]]:
        """Return by line which number of a row stands there, and its value; the first of each line counts."""
        found: dict[int, tuple[str, float]] = {}
        matches = list(self.pattern.finditer(piece.text))
        rows = rows_of([match.start(1) for match in matches], piece.text_ends)
        for row, match in zip(rows, matches, strict=True):
            name, value = measure(self.meaning, number_of(match[1]))
            if value is not None:
                found.setdefault(first_line + row, (name, value))
        return found


def fill(part: Columns | list[StepRow], told: dict[int, tuple[str, float]], since: int = 0) -> None:
    """Give the rows of one part, from a place on, the times that their lines tell."""
    if isinstance(part, Columns):
        for at, line in enumerate(part.lines):
            if line in told:
                name, value = told[line]
                place = at * len(FIELDS) + FIELDS.index(name)
                if math.isnan(part.values[place]):
                    part.values[place] = value
        return
    for row in part[since:]:
        if row.line in told and getattr(row, told[row.line][0]) is None:
            setattr(row, *told[row.line])


def learn_times(
    lines: Sequence[bytes], may_name_a_loss: Callable[[bytes], bool]
) -> LineTimes | None:
    """Return where the time stands on step lines of which a form reads all but the time; None where none does."""
    if len(lines) > _FEW:
        lines = [*lines[: _FEW // 2], *lines[-_FEW // 2 :]]
    miner = StepMiner(within_known=True, only_times=True)
    if not miner.learn(lines, may_name_a_loss(b"\n".join(lines))):
        return None
    miner.feed(lines, 1)
    rows = miner.finish()
    for key, one in miner.layouts.items():
        parts = key.split("\0")
        for at, meaning in one.meanings.items():
            pattern = _beside(parts[at], parts[at + 1]) if meaning.startswith(TIMES) else None
            if pattern is None:
                continue
            found = LineTimes(pattern, meaning)
            told = found.of(Piece(b"\n".join(lines) + b"\n"), 1)
            same = sum(row.line in told and _is(row, *told[row.line]) for row in rows)
            if same >= _MOSTLY * len(rows):
                return found
    return None


def _is(row: StepRow, name: str, value: float) -> bool:
    known = getattr(row, name)
    return known is not None and math.isclose(known, value, rel_tol=1e-9)


def _beside(before: str, behind: str) -> re.Pattern[bytes] | None:
    """Return a pattern of a number between what stands in front of and behind it; None where that is no word."""
    front = re.split(r"[@\0]", before)[-1][-_NEAR:]
    back = re.split(r"[@\0]", behind)[0]
    # What is written at the number itself, or the next word, as a unit.
    unit = re.match(r"[^\s\d]+|\s[A-Za-z/]+", back)
    rear = unit[0][:_NEAR] if unit else ""
    if not re.search(r"[^\W\d]", front + rear):
        return None
    begin = _literal(front) if front.strip() else rb"(?<![\w.+-])"
    return re.compile(
        begin + _NUMBER + _literal(rear) + (rb"(?!\w)" if rear[-1:].isalnum() else rb"")
    )


def _literal(text: str) -> bytes:
    # Programs pad numbers with spaces, and the layout has one for each run of them.
    return re.sub(rb"(?:\\ )+", rb"[ \\t]+", re.escape(text).encode())
