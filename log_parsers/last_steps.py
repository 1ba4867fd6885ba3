"""The last step of every stream of a file, in columns; exact, whatever step lines were kept."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field

from rerail.late_dataclass import dataclass

_MOST_KEPT = 64  # lines


@dataclass(slots=True)
class LastSteps:
    """By stream the last step that it told and the number of the line, in order of lines."""

    streams: array[int] = field(default_factory=lambda: array("q"))
    lines: array[int] = field(default_factory=lambda: array("q"))
    steps: array[int] = field(default_factory=lambda: array("q"))

    def __len__(self) -> int:
        return len(self.streams)

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        return zip(self.streams, self.lines, self.steps, strict=True)

    @classmethod
    def of(cls, rows: Iterable[tuple[int, int, int]]) -> LastSteps:
        """Return the columns of some (stream, line, step)."""
        streams, lines, steps = zip(*rows, strict=True) if (rows := list(rows)) else ((), (), ())
        return cls(array("q", streams), array("q", lines), array("q", steps))


def behind_others(found: Sequence[tuple[int, int, int, bytes]]) -> list[tuple[int, bytes]]:
    """Return the last step lines, with their numbers, of the streams whose step is below that of most.

    Args:
        found: stream, number of the line, step and line of each stream.
    """
    if not found:
        return []
    front, _ = Counter(step for _, _, step, _ in found).most_common(1)[0]
    late = [(number, line) for _, number, step, line in found if step < front]
    return late[:_MOST_KEPT]
