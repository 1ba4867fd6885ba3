"""What Python raised from an exception: it is the same process that did."""

from __future__ import annotations

from rerail.domain.evidence import LogLine
from rerail.knowledge_base.phrases import says
from rerail.knowledge_base.placement.own_words import number_in
from rerail.knowledge_base.placement.place import Answer, Asked
from rerail.log_parsers.tracebacks import looks_like_exception

_CHAINED_LINES = 80  # from an exception to the one that is raised from it


def raised_from(asked: Asked) -> Answer[int] | None:
    """The exception that was raised from this one names the rank that raised it."""
    view, start = asked.case.view(asked.line), asked.line.number
    if not asked.event.lines:
        return None
    chained = False
    for number in view.between(start + 1, start + _CHAINED_LINES):
        line = view.line(number)
        if line is None or line.label != asked.line.label:
            continue
        chained = chained or says("raised-from", line.message)
        if chained and looks_like_exception(line.message):
            rank = number_in(line.message, "rank")
            return None if rank is None else Answer(rank, "what was raised from it names it", line)
        if not chained and line.message.strip():
            return None
    return None


def raised_from_it(asked: Asked, other: LogLine) -> bool:
    """Tell whether an exception further down was raised from this one, as Python prints between the two."""
    start, view = asked.line, asked.case.view(asked.line)
    if (other.file, other.label) != (start.file, start.label) or not start.number < other.number:
        return False
    between = (view.line(n) for n in view.between(start.number + 1, other.number - 1))
    return other.number - start.number <= _CHAINED_LINES and any(
        line is not None and line.label == start.label and says("raised-from", line.message)
        for line in between
    )
