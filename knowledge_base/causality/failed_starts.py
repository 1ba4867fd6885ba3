"""A node on which every start fails: it stays idle after each one, and so gets the next job as well."""

from __future__ import annotations

from collections import Counter

from rerail.domain.evidence import Observation
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.placement.own_words import node_in
from rerail.knowledge_base.taxonomy import has

_OFTEN = 3


def starts_failed_on(case: Case, first: Observation, node: str) -> int:
    """Return how often starts failed on a node and on no other, or 0 where they did less than three times.

    It counts only where the job printed no step between the first failed start and the last one.
    """
    if not has(first.leaf, "at_start"):
        return 0
    told = [
        o
        for o in case.observations
        if o.rule_id == first.rule_id and o.line.file == first.line.file
    ]
    where = Counter(o.fields.get("node") or o.line.node or node_in(o.line.message) for o in told)
    where.pop(None, None)
    if set(where) != {node} or where[node] < _OFTEN:
        return 0
    numbers = [o.line.number for o in told]
    steps = case.view(first.line).survey.steps
    if any(min(numbers) < row.line < max(numbers) for row in steps):
        return 0
    return where[node]
