"""Who logged a traceback as one record: its label stands in front of the first line, and none in front of the others."""

from __future__ import annotations

from rerail.domain.evidence import LogLine
from rerail.knowledge_base.placement.place import Answer, Asked
from rerail.log_parsers.tracebacks import HEADER

_ABOVE = 3  # lines between the head of a traceback and the first frame that is kept


def head_of_record(asked: Asked) -> LogLine | None:
    """Return the labelled line with which a logger began the traceback of an exception that has no label of its own."""
    lines = asked.event.lines
    if not lines or any(line.label for line in (*lines, asked.line)):
        return None
    view, first = asked.case.view(asked.line), lines[0].number
    for number in reversed(list(view.between(max(1, first - _ABOVE), first - 1))):
        line = view.line(number)
        if line is not None and line.message.rstrip().endswith(HEADER):
            return line if line.label else None
    return None


def logged_by(asked: Asked) -> Answer[int] | None:
    """The rank in the label of the record of which an exception is the last line."""
    head = head_of_record(asked)
    if head is None or head.rank is None:
        return None
    return Answer(head.rank, "the label in front of its traceback", head)


def logged_on(asked: Asked) -> Answer[str] | None:
    """The host in the label of the record of which an exception is the last line."""
    head = head_of_record(asked)
    node = asked.identities.node_in_front(head) if head is not None else None
    return None if node is None else Answer(node, "the label in front of its traceback", head)
