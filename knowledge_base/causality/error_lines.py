"""Lines in which a program calls something an error, whether or not a rule knows what it is about."""

from __future__ import annotations

from rerail.domain.evidence import LogLine
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.phrases import phrase_in_bytes


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
    view, cry = case.view(behind), phrase_in_bytes("cry")
    known = {o.line.number for o in case.observations if o.line.file == behind.file}
    last = before - 1 if before is not None else (view.numbers[-1] if view.numbers else 0)
    for number in view.between(behind.number + 1, last):
        if cry.search(view.survey.kept[number]) and (judged or number not in known):
            return view.line(number)
    return None
