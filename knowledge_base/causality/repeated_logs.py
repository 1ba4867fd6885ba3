"""One log given twice under two names is one witness."""

from __future__ import annotations

from collections.abc import Iterable

from rerail.log_parsers.view import LogView

_STAMPS = 50  # lines tried for a time


def without_copies(views: Iterable[LogView]) -> list[LogView]:
    """Return the files without those that repeat an earlier one, its times included.

    Two equal dumps without a time may be two looks at a job that hangs; they both stay.
    """
    found: list[LogView] = []
    for view in views:
        if not any(_same(view, other) for other in found):
            found.append(view)
    return found


def _same(view: LogView, other: LogView) -> bool:
    a, b = view.survey, other.survey
    return (a.size, a.lines) == (b.size, b.lines) and a.kept == b.kept and _timed(view)


def _timed(view: LogView) -> bool:
    if view.survey.steps:
        return True
    lines = (view.line(number) for number in view.numbers[:_STAMPS])
    return any(line is not None and line.time is not None for line in lines)
