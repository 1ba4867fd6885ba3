"""Votes among samples on behaviour: which failure type, and which line came first; not on words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rerail.assistant.agent.grounding import Grounded


def elect(samples: Sequence[Grounded]) -> tuple[Grounded, int]:
    """Return the sample that speaks for most, and how many agree with it.

    Samples agree when failure type and first fault are the same. Where no two do, those of one
    failure type count together. Among equals the better grounded one speaks.

    Raises:
        ValueError: when there is no sample.
    """
    if not samples:
        raise ValueError("no sample to vote on")
    ballots = Counter(s.ballot for s in samples)
    top = max(ballots.values())
    if top == 1 and len(samples) > 1:
        types = Counter(s.failure_type for s in samples)
        leaf, votes = types.most_common(1)[0]
        agreeing = [s for s in samples if s.failure_type == leaf]
        return _best(agreeing), votes
    winners = [s for s in samples if ballots[s.ballot] == top]
    return _best(winners), top


def settled(samples: Sequence[Grounded], wanted: int) -> bool:
    """Tell whether further samples cannot change the result."""
    if not samples:
        return False
    (_, first), *rest = Counter(s.ballot for s in samples).most_common(2)
    second = rest[0][1] if rest else 0
    return first > second + (wanted - len(samples)) and first * 2 > wanted


def _best(samples: Sequence[Grounded]) -> Grounded:
    return max(samples, key=lambda s: (s.grounded_share, len(s.claims)))
