"""Ranks that a library counts within a group: they are the job's where the group holds all of its processes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from rerail.knowledge_base.statements import Statement


def without_parts(statements: Sequence[Statement]) -> list[Statement]:
    """Leave out what is told of the ranks of a part of the job.

    Of groups of one kind only the largest may be the whole job, and only where it is one: each of its ranks is
    told by one writer, and no writer has two of them.
    """
    groups: dict[str, dict[int, list[Statement]]] = defaultdict(lambda: defaultdict(list))
    for one in statements:
        if "whole_group" in one.form.tells:
            groups[one.form.id][one.number("peers") or 0].append(one)
    kept = {id(one) for sizes in groups.values() for one in _whole(sizes[max(sizes)])}
    parts = _of_parts([one for one in statements if "communicator" in one.form.tells])
    return [
        s
        for s in statements
        if id(s) not in parts and ("whole_group" not in s.form.tells or id(s) in kept)
    ]


def _of_parts(told: Sequence[Statement]) -> set[int]:
    """Return what is told of communicators, where more processes tell of theirs than the largest one holds."""
    processes = {(one.line.node, one.line.pid) for one in told if one.line.pid is not None}
    largest = max((one.number("world") or 0 for one in told), default=0)
    return {id(one) for one in told} if len(processes) > largest else set()


def _whole(told: list[Statement]) -> list[Statement]:
    pairs = {(one.number("rank"), (one.line.label, one.line.place)) for one in told}
    ranks, writers = {rank for rank, _ in pairs}, {writer for _, writer in pairs}
    return told if len(ranks) == len(writers) == len(pairs) else []
