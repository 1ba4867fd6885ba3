"""The unfinished last line of a log that was cut: what it does not say any more, its rank or others may have said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rerail.knowledge_base.case import Case
from rerail.knowledge_base.waiting.read import Facts, Position
from rerail.lazy_patterns import lazy
from rerail.log_parsers.sources import Problem

_NUMBER = lazy(r"\d+")
_SAMPLES = 64
_LEAST = 16  # characters
_CUT = (
    "it ends in the middle of a line like those of the ranks that gave up: others may have followed"
)


def without_torn(case: Case, facts: Facts) -> None:
    """Take the rank whose time-out is cut off at the end of a file for one that waited, and for no call of its own."""
    shapes = {_NUMBER.sub("0", one.line.text) for one in facts.positions[:_SAMPLES]}
    for view in case.views:
        if view.survey.ends_with_newline or not shapes:
            continue
        line = view.line(view.survey.last_nonempty)
        shape = _NUMBER.sub("0", line.text) if line is not None else ""
        if line is None or len(shape) < _LEAST:
            continue
        if any(one != shape and one.startswith(shape) for one in shapes):
            if line.rank is not None:
                facts.victims.add(line.rank)
                facts.positions[:] = _without_call(facts.positions, line.file, line.number)
            # Hardly any cut comes just where one is left; where several are, they may stand in what was cut off.
            if len(case.facts.ranks_heard() - facts.victims) > 1:
                cut = Problem(view.name, _CUT, "copy the file again", cut=True)
                if cut not in case.problems:  # a case may be judged more than once
                    case.problems.append(cut)


def _without_call(positions: Sequence[Position], file: str, number: int) -> list[Position]:
    return [
        replace(one, op=None, seq=None, size=None)
        if (one.line.file, one.line.number) == (file, number)
        else one
        for one in positions
    ]
