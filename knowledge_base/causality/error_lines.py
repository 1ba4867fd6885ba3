"""Lines in which a program calls something an error, whether or not a rule knows what it is about."""

from __future__ import annotations

from collections.abc import Sequence

from rerail.domain.evidence import LogLine, Role
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.phrases import phrase_in_bytes


def first_cry(
    case: Case,
    behind: LogLine,
    before: int | None = None,
    *,
    judged: bool = False,
    words: Sequence[str] = ("cry",),
) -> LogLine | None:
    """Return the first line of the same file behind a line that calls itself an error or is what stopping prints, or None.

    Args:
        case: the evidence.
        behind: the line to look behind.
        before: the number of the line to look up to; None for the end of the file.
        judged: whether lines that a rule has judged count as well.
        words: the phrases that make a line one.
    """
    view, cries = case.view(behind), [phrase_in_bytes(name) for name in words]
    known = {o.line.number: o.role for o in case.observations if o.line.file == behind.file}
    last = before - 1 if before is not None else (view.numbers[-1] if view.numbers else 0)
    for number in view.between(behind.number + 1, last):
        raw, role = view.survey.kept[number], known.get(number, Role.CONTEXT)
        if not judged and role is Role.TEARDOWN:
            return view.line(number)
        if (judged or role is Role.CONTEXT) and any(cry.search(raw) for cry in cries):
            return view.line(number)
    return None
