"""Rounds of disjoint pairs in which every two nodes meet once (one-factorisation of K_n)."""

from __future__ import annotations

from collections.abc import Iterator

Pair = tuple[int, int]


def rounds(count: int) -> int:
    """Return how many rounds it takes until every two of `count` nodes have met."""
    return 0 if count < 2 else count - 1 + count % 2


def pairs_of_round(count: int, number: int) -> list[Pair]:
    """Return the disjoint pairs of one round; with an odd count one node rests.

    The circle method: one node stands still, the others move one seat a round. Over all rounds every
    pair is met exactly once.
    """
    if count < 2:
        return []
    even = count + count % 2
    turn = number % (even - 1)
    found: list[Pair] = []
    for seat in range(even // 2):
        if seat == 0:
            one, other = even - 1, turn
        else:
            one, other = (turn + seat) % (even - 1), (turn - seat) % (even - 1)
        if one < count and other < count:  # the seat beyond an odd count is the rest
            found.append((min(one, other), max(one, other)))
    return sorted(found)


def all_rounds(count: int) -> Iterator[list[Pair]]:
    """Yield the pairs of every round."""
    for number in range(rounds(count)):
        yield pairs_of_round(count, number)
