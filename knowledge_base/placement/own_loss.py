"""Whether a loss that a step line carries is that of one process, and not the mean of the job."""

from __future__ import annotations

import math
from collections import defaultdict

from rerail.domain.evidence import LogLine
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.placement.processes import pid_in_front

_MOST_ROWS = 2_000
_LEAST_OTHERS = 2

_Writer = tuple[int | None, int | None]


def is_own_loss(case: Case, line: LogLine) -> bool:
    """Tell whether a writer alone has lost its loss at a step, as the step lines of the others show.

    A mean over all processes is the same for all of them. Where several others print it, and all of them lose theirs
    at later steps, it was the writer's own. So it is where one other writer alone logs for the job, and this one,
    which is not the first rank, prints no step but the one that it complains of.
    """
    writer = _writer(line)
    rows = case.view(line).survey.steps
    if writer is None or len(rows) > _MOST_ROWS:
        return False
    view = case.view(line)
    lost: dict[_Writer, int] = {}
    steps: dict[_Writer, set[int]] = defaultdict(set)
    for row in rows:
        other = view.line(row.line)
        who = _writer(other) if other is not None else None
        if who is None or row.step is None:
            continue
        if row.loss is not None and not math.isfinite(row.loss):
            lost.setdefault(who, row.step)
        elif row.loss is not None:
            steps[who].add(row.step)
    at = lost.pop(writer, None)
    if at is None:
        return False
    if len(lost) >= _LEAST_OTHERS:
        return all(step > at for step in lost.values())
    loggers = steps.keys() - {writer}
    return not lost and not steps[writer] and len(loggers) == 1 and writer[0] != 0


def _writer(line: LogLine) -> _Writer | None:
    pid = pid_in_front(line)
    return None if line.rank is None and pid is None else (line.rank, pid)
