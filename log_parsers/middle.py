"""The median, as `statistics` has it: loading that library takes longer than most logs are worth."""

from __future__ import annotations

from collections.abc import Iterable


def median(values: Iterable[float]) -> float:
    """Return the middle value, or the mean of the two in the middle.

    Raises:
        ValueError: There are no values.
    """
    ranked = sorted(values)
    if not ranked:
        raise ValueError("no median of no values")
    half = len(ranked) // 2
    return ranked[half] if len(ranked) % 2 else (ranked[half - 1] + ranked[half]) / 2
