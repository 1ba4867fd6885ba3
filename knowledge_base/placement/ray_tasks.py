"""Which remote process a traceback of Ray is of: the driver prints it, another host raised it.

`RayTaskError.as_instanceof_cause` gives the driver the worker's own traceback behind a line
`ray.exceptions.RayTaskError(OutOfMemoryError): ray::Worker.step() (pid=118848, ip=10.130.71.7, ...)`.
"""

from __future__ import annotations

import re

from rerail.domain.evidence import LogLine
from rerail.knowledge_base.case import Case

_TASK = re.compile(
    r"\bray::[\w.:<>\[\]-]{1,120}\(\) \((?:[^)]{0,80}, )?pid=(?P<pid>\d{1,8}), ip=(?P<node>[^,)\s]{3,60})"
)
_HEADLINE = re.compile(r"^[\w.]{1,80}(?:Error|Exception)\b")
_FRAME = re.compile(r"^\s+\S")
_REACH = 300  # lines of a traceback


def task_of(case: Case, line: LogLine) -> tuple[int, str] | None:
    """Return the process id and the host of the remote task that raised what a line tells, or None."""
    if line.label:
        return None  # a worker's own output says whose it is
    view = case.view(line)
    for number in reversed(list(view.between(max(1, line.number - _REACH), line.number))):
        text = view.text(number) or ""
        if match := _TASK.search(text):
            return int(match["pid"]), match["node"]
        # Ray puts its `ray::` line in the place of every head of a remote traceback, also of the chained ones,
        # so that another head, headline or blank line ends it: what follows is the driver's own.
        if not _FRAME.match(text) and (number != line.number or not _HEADLINE.match(text)):
            return None
    return None
