"""Descriptions of pods that were taken after the pod had begun anew, perhaps on another node."""

from __future__ import annotations

from rerail.knowledge_base.case import Case
from rerail.knowledge_base.statements import Statement
from rerail.log_parsers.timestamps import find_stamp

_ANY_YEAR = 1970


def tells_no_place(case: Case, statement: Statement) -> bool:
    """Tell whether a description is of no pod that runs ranks, or of one that began behind a line that it had written.

    Where that one ran before, it does not tell. Of a pod without lines of its own any line counts.
    """
    pod = statement.slots.get("pod")
    own: list[float] = []
    others: list[float] = []
    if pod is None:
        return True
    began = _seconds(statement.slots["began"])
    if began is None:
        return False
    for view in case.views:
        for number in view.numbers:
            line = view.line(number)
            if line is not None and line.time is not None:
                (own if line.place == pod else others).append(line.time)
    return min(own or others, default=began) < began


def _seconds(text: str) -> float | None:
    from email.utils import parsedate_to_datetime  # kubectl writes times as letters do

    try:
        return parsedate_to_datetime(text).timestamp()
    except ValueError:
        stamp = find_stamp(text, year=_ANY_YEAR)
        return stamp.seconds if stamp is not None and stamp.has_year else None
