"""Where some lines of a large file begin, noted while it is read: later a line is found without counting all before it."""

from __future__ import annotations

from collections.abc import Iterable

FIRST = 32 << 20
"""Bytes between two marks, until there are too many of them; a file up to this size has none."""
MOST = 128

Marks = tuple[tuple[int, int], ...]
"""(line, byte at which it begins), both ascending; lines count from 1."""


class LineMarks:
    """Takes every place that is passed and keeps some of them, evenly over what was passed."""

    def __init__(self, marks: Iterable[tuple[int, int]] = ()) -> None:
        self._marks = list(marks)
        self._every = FIRST

    def passed(self, line: int, offset: int, *, within: bool = False) -> None:
        """Take the beginning of a line, nothing `within` one; lines come in their order."""
        if within or offset < self._every + (self._marks[-1][1] if self._marks else 0):
            return
        self._marks.append((line, offset))
        if len(self._marks) > MOST:
            self._every *= 2
            self._marks = self._marks[1::2]

    def clear(self) -> None:
        """Forget all: what was counted is not what lies in the file."""
        self._marks.clear()

    def kept(self) -> Marks:
        """Return the marks."""
        return tuple(self._marks)
