"""Descriptions of pods that were taken after the pod had begun anew, perhaps on another node."""

from __future__ import annotations

from functools import cached_property

from rerail.knowledge_base.case import Case
from rerail.knowledge_base.statements import Statement
from rerail.log_parsers.timestamps import find_stamp

_ANY_YEAR = 1970


class DescribedPods:
    """Which descriptions of pods tell a place; the times of all lines are looked at once, where one is asked for."""

    def __init__(self, case: Case) -> None:
        self._case = case

    def tells_no_place(self, statement: Statement) -> bool:
        """Tell whether a description is of no pod that runs ranks, or of one that began behind a line that it had written.

        Where that one ran before, it does not tell. Of a pod without lines of its own any line counts.
        """
        pod = statement.slots.get("pod")
        if pod is None:
            return True
        began = _seconds(statement.slots["began"])
        earliest = self._earliest.get(pod, self._earliest.get(None))
        return began is not None and earliest is not None and earliest < began

    @cached_property
    def _earliest(self) -> dict[str | None, float]:
        """The first time of the lines of each pod, and under None that of all lines."""
        found: dict[str | None, float] = {}
        for view in self._case.views:
            for line in map(view.line, view.numbers):
                if line is not None and line.time is not None:
                    for whose in {line.place, None}:
                        found[whose] = min(found.get(whose, line.time), line.time)
        return found


def _seconds(text: str) -> float | None:
    from email.utils import parsedate_to_datetime  # kubectl writes times as letters do

    try:
        return parsedate_to_datetime(text).timestamp()
    except ValueError:
        stamp = find_stamp(text, year=_ANY_YEAR)
        return stamp.seconds if stamp is not None and stamp.has_year else None
