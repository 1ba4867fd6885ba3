"""Many numbers in few words."""

from __future__ import annotations

from collections.abc import Sequence


def ranges(numbers: Sequence[int]) -> str:
    """Return sorted integers as `0-16,18-63`."""
    parts: list[str] = []
    start = previous = None
    for number in [*numbers, None]:
        if start is not None and previous is not None and number == previous + 1:
            previous = number
            continue
        if start is not None:
            parts.append(str(start) if start == previous else f"{start}-{previous}")
        start = previous = number
    return ",".join(parts)
