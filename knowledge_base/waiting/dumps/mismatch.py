"""Finds the first collective that ranks of one group entered with different calls.

Within a group a sequence number must mean the same call on every rank: the same operation and,
where the operation asks for it, the same element counts and types. Only collectives that some
member did not finish count; what everybody finished did no harm. Point-to-point operations are
not compared, because their numbers do not correspond across ranks.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from rerail.knowledge_base.waiting.dumps.board import Board, Operation
from rerail.knowledge_base.waiting.dumps.wording import call
from rerail.log_parsers.flight_recorder.model import Entry

# Whose input and output must have the same number of elements on every member.
_SAME_COUNT = frozenset({"all_reduce", "all_gather", "reduce_scatter", "broadcast"})
_SAME_TYPE = _SAME_COUNT | {"reduce", "all_to_all"}


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One collective with different calls.

    `what` is operation, size or dtype. `odd` are the ranks of all variants but the most common
    one; if no variant is the most common, `odd` holds every rank and `tied` is true.
    """

    operation: Operation
    what: str
    variants: tuple[tuple[str, tuple[int, ...]], ...]
    odd: tuple[int, ...]
    tied: bool


def find_mismatch(board: Board) -> Mismatch | None:
    """Return the earliest mismatch of a job, or None."""
    found = [m for o in board.operations.values() if o.pending and (m := _compare(o))]
    # Behind the first mismatch of a group the numbers are shifted and everything differs.
    return min(found, key=lambda m: (m.operation.created_ns, m.operation.key), default=None)


def _compare(operation: Operation) -> Mismatch | None:
    entries = {**operation.done, **operation.pending}
    if len(entries) < 2:
        return None
    if mismatch := _differ(operation, entries, "operation", {r: e.op for r, e in entries.items()}):
        return mismatch
    op = operation.sample.op
    if op in _SAME_COUNT:
        counts = {
            rank: (_elements(e.input_sizes), _elements(e.output_sizes))
            for rank, e in entries.items()
            if e.input_sizes or e.output_sizes
        }
        if mismatch := _differ(operation, entries, "size", counts):
            return mismatch
    if op in _SAME_TYPE:
        types = {
            rank: (frozenset(e.input_dtypes), frozenset(e.output_dtypes))
            for rank, e in entries.items()
            if e.input_dtypes and e.output_dtypes
        }
        return _differ(operation, entries, "dtype", types)
    return None


def _elements(sizes: tuple[tuple[int, ...], ...]) -> int:
    return sum(math.prod(size) for size in sizes)


def _differ(
    operation: Operation, entries: dict[int, Entry], what: str, values: Mapping[int, Hashable]
) -> Mismatch | None:
    ranks_of: defaultdict[Hashable, list[int]] = defaultdict(list)
    for rank, value in sorted(values.items()):
        ranks_of[value].append(rank)
    if len(ranks_of) < 2:
        return None
    classes = sorted(ranks_of.values(), key=len, reverse=True)
    tied = len(classes[0]) == len(classes[1])
    odd = sorted(r for ranks in (classes if tied else classes[1:]) for r in ranks)
    variants = tuple((call(entries[ranks[0]]), tuple(ranks)) for ranks in classes)
    return Mismatch(operation, what, variants, tuple(odd), tied)
