"""What is known of skeletons, by their numbers in the table of the compiled loops: looked up for all of a piece at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rerail.log_parsers.tallies import Tally

_UNKNOWN = -(1 << 31)


class BySkeleton:
    """Remembers some whole numbers of 31 bits for each skeleton."""

    def __init__(self, columns: int = 1) -> None:
        self._columns = columns
        self._era = -1
        self._known: Any = None

    def of(self, tally: Tally, ask: Callable[[int], tuple[int, ...]]) -> Any:
        """Return the numbers of the skeletons of a tally, one row each.

        `ask` returns those of a skeleton by its place in the tally; it is asked once for each skeleton.
        """
        import numpy as np

        numbers = tally.numbers
        if numbers is None:
            told = [ask(place) for place in range(len(tally.keys))]
            return np.asarray(told, np.int32).reshape(len(told), self._columns)
        if self._era != tally.era:
            self._era, self._known = tally.era, np.empty((0, self._columns), np.int32)
        most = int(numbers.max(initial=-1)) + 1
        if len(self._known) < most:
            wider = np.full((2 * most, self._columns), _UNKNOWN, np.int32)
            wider[: len(self._known)] = self._known
            self._known = wider
        found = self._known[numbers]
        new = np.flatnonzero(found[:, 0] == _UNKNOWN)
        for place in new.tolist():
            found[place] = ask(place)
        self._known[numbers[new]] = found[new]
        return found
