"""Ranks that two processes of one job take: each of them counts the processes of its own node only.

The processes of a job announce themselves, each by its rank and the number of all. Where as many announce
themselves as the job has, but some ranks stand twice and others never, the environment of the launch is wrong.
A restart announces all ranks again, and so leaves none out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from itertools import pairwise

from rerail.domain.evidence import Observation, Role

_BETWEEN_STARTS = frozenset({Role.INITIATING, Role.CASCADE, Role.TEARDOWN, Role.SUCCESS})
_GAP = 4  # lines between the announcements of one start


def without_single(found: Sequence[Observation], rules: Collection[str]) -> list[Observation]:
    """Return the observations without those of some rules by which no rank was taken a second time.

    Args:
        found: all observations, in the order of the evidence.
        rules: the rules of announcements; their fields `taken` and `world` are the rank and the size of the job.
    """
    told = [one for one in found if one.rule_id in rules]
    if not told:
        return list(found)
    others = [one for one in found if one.rule_id not in rules]
    again = set(map(id, _taken_again(told, others)))
    return [one for one in found if one.rule_id not in rules or id(one) in again]


def _taken_again(told: Sequence[Observation], others: Sequence[Observation]) -> list[Observation]:
    counts = Counter(one.fields.get("taken") for one in told)
    worlds = {one.fields.get("world", "") for one in told}
    world = worlds.pop() if len(worlds) == 1 else ""
    if not world.isdigit() or len(told) != int(world) or len(counts) == len(told):
        return []
    if len(set(counts.values())) != 1 or not (_of_two_hosts(told) or _in_one_go(told, others)):
        return []
    seen: set[str | None] = set()
    again = []
    for one in told:
        rank = one.fields.get("taken")
        if rank in seen:
            again.append(one)
        seen.add(rank)
    return again


def _of_two_hosts(told: Sequence[Observation]) -> bool:
    """Tell whether the lines of every rank stand under different labels or hosts."""
    places = {(one.fields.get("taken"), one.line.node, one.line.label) for one in told}
    return len(places) == len(told)


def _in_one_go(told: Sequence[Observation], others: Sequence[Observation]) -> bool:
    """Tell whether these lines stand close together in one file, and nothing failed or came to its end between them."""
    first, last = told[0].line, told[-1].line
    near = all(b.line.number - a.line.number <= _GAP for a, b in pairwise(told))
    return near and first.file == last.file and not any(
        one.role in _BETWEEN_STARTS and one.line.file == first.file
        and first.number < one.line.number < last.number
        for one in others
    )  # fmt: skip
