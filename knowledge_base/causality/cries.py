"""Lines in which a program calls something an error, whether or not a rule knows what it is about."""

from __future__ import annotations

import re

from rerail.domain.evidence import LogLine
from rerail.knowledge_base.case import Case

# Words that programs keep for their own end, and a logger's level; plain "error" stands in too many harmless lines.
_CRY = re.compile(
    rb"\b(?:FATAL|PANIC|CRITICAL)\b|\bfatal error\b|\blevel=(?:fatal|error)\b|\[(?:fatal|error)\]|\bUnrecoverable\b|"
    rb"(?:^|[\s\[(|:-])ERROR(?:[\s\])|:]|$)|"
    # An exception's own line, as Python prints it last, behind whatever label.
    rb"(?:^|[\]>|:)] ?)(?:[A-Za-z_]\w{0,40}\.){0,6}[A-Z]\w{0,60}(?:Error|Exception): \S"
)


def first_cry(
    case: Case, behind: LogLine, before: int | None = None, *, judged: bool = False
) -> LogLine | None:
    """Return the first line of the same file behind a line that calls itself an error, or None.

    Args:
        case: the evidence.
        behind: the line to look behind.
        before: the number of the line to look up to; None for the end of the file.
        judged: whether lines that a rule has judged count as well.
    """
    view = case.view(behind)
    known = {o.line.number for o in case.observations if o.line.file == behind.file}
    last = before - 1 if before is not None else (view.numbers[-1] if view.numbers else 0)
    for number in view.between(behind.number + 1, last):
        if _CRY.search(view.survey.kept[number]) and (judged or number not in known):
            return view.line(number)
    return None
