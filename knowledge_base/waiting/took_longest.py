"""Who was busy for as long as the others waited: ranks say how long the same work took, and one needed the whole wait."""

from __future__ import annotations

from collections import defaultdict
from itertools import islice

from rerail.domain.evidence import LogLine
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.phrases import phrase
from rerail.knowledge_base.placement.own_words import number_in
from rerail.knowledge_base.waiting.engine import Finding, How, Waiting
from rerail.log_parsers.text import without_digits

_MOST_LINES = 20_000
_LEAST_OTHERS, _APART = 3, 10.0
"""How many others say how long it took them, and how much longer it must have taken the one."""
_UNITS = {"ms": 0.001, "s": 1.0, "se": 1.0, "m": 60.0, "mi": 60.0}


def took_longest(case: Case, waiting: Waiting) -> Finding | None:
    """Return the one rank to which the same work took longer than the others' time-out and far longer than to any other.

    It may give up waiting later itself, but is not among those that did.
    """
    limit = waiting.first.limit_s if waiting.first is not None else None
    if limit is None:
        return None
    for said in _said(case).values():
        *others, last = sorted(said, key=lambda rank: said[rank][0])
        seconds, line = said[last]
        if len(others) < _LEAST_OTHERS or last in waiting.victims or seconds < limit:
            continue
        most = said[others[-1]][0]
        if seconds >= _APART * most:
            words = f"rank {last} was busy for {seconds:.4g} s with what took the others {most:.4g} s at most"
            return Finding(How.SPOKE, (last,), words, line)
    return None


def _said(case: Case) -> dict[str, dict[int, tuple[float, LogLine]]]:
    """Return, by the wording of a line without its numbers, how many seconds it took each rank, the last time it said so."""
    said: dict[str, dict[int, tuple[float, LogLine]]] = defaultdict(dict)
    took = phrase("time-that-it-took")
    for view in case.views:
        for number in islice(case.lines_with(view, "time-that-it-took"), _MOST_LINES):
            line = view.line(number)
            match = took.search(line.message) if line is not None else None
            if line is None or match is None:
                continue
            rank = line.rank if line.rank is not None else number_in(line.message, "rank")
            if rank is not None:
                seconds = float(match["value"]) * _UNITS[match["unit"][:2]]
                said[without_digits(line.message)][rank] = (seconds, line)
    return said
