"""Which of two ranks loaded another version than the rest of the job, by what each host prints when it starts."""

from __future__ import annotations

from collections import Counter

from rerail.domain.evidence import LogLine
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.phrases import phrase, phrase_in_bytes
from rerail.knowledge_base.placement.identities import Identities
from rerail.knowledge_base.placement.names import short

_MOST_LINES = 20_000


def of_odd_version(
    case: Case, identities: Identities, ranks: set[int]
) -> tuple[int, LogLine] | None:
    """Return the one of two ranks whose host alone prints a version of its own, and that line, or None."""
    odd = host_of_odd_version(case, identities)
    if odd is None:
        return None
    host = short(identities.node_of(odd) or "")
    there = [r for r in ranks if short(identities.node_of_rank.get(r, "")) == host]
    return (there[0], odd) if len(there) == 1 else None


def host_of_odd_version(case: Case, identities: Identities) -> LogLine | None:
    """Return the line of the only host that prints another version or number of devices than all others, or None."""
    seen: dict[str, dict[str, tuple[str, LogLine]]] = {"version": {}, "nics": {}}
    sieve, version = phrase_in_bytes("loaded-version"), phrase("loaded-version")
    for view in case.views:
        for number in view.numbers[:_MOST_LINES]:
            if not sieve.search(view.survey.kept[number]):
                continue
            line = view.line(number)
            told = version.search(line.message) if line is not None else None
            if line is None or told is None:
                continue
            node = identities.node_of(line)
            if node is not None and told.lastgroup is not None:
                seen[told.lastgroup].setdefault(short(node), (told[told.lastgroup], line))
    found = [line for told_by in seen.values() if (line := _odd_one(told_by)) is not None]
    return found[0] if len(found) == 1 else None


def _odd_one(told: dict[str, tuple[str, LogLine]]) -> LogLine | None:
    """Return the line of the only host of three or more whose value is not that of all others."""
    counted = Counter(value for value, _ in told.values())
    odd = [line for value, line in told.values() if counted[value] == 1]
    return odd[0] if len(counted) == 2 and len(told) > 2 and len(odd) == 1 else None
