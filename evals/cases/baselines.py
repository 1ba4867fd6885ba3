"""What a person with grep would say: the first, or the last, line with a word of failure."""

from __future__ import annotations

import re

from rerail.evals.cases.case_file import LabelledCase
from rerail.evals.cases.score import Tally

_WORD = re.compile(
    r"error|exception|fail|fatal|traceback|abort|killed|panic|timed? ?out|xid|cannot|unable|denied|oom",
    re.IGNORECASE,
)


def keyword_line(log: str, *, last: bool) -> int | None:
    """Return the 0-based number of the first or last line that holds a word of failure."""
    hits = [i for i, line in enumerate(log.split("\n")) if _WORD.search(line)]
    return None if not hits else hits[-1] if last else hits[0]


def keyword_tally(cases: list[LabelledCase], *, last: bool) -> Tally:
    """Score the keyword rule on the questions that it can answer."""
    total = Tally()
    for case in cases:
        at = keyword_line(case.log, last=last)
        if case.benign:
            total.add("false_alarm", at is not None)
        if case.lines:
            total.add("line", at in case.lines)
            total.add("near", at is not None and any(abs(at - x) <= 2 for x in case.lines))
    return total
