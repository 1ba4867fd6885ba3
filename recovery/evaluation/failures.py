"""How often each piece of a data set has failed: an outage that ends many trials is no broken set."""

from __future__ import annotations

from collections import Counter


class Failures:
    """Counts failures by item, so that pieces which are cut anew keep what was held against them.

    Pieces that run at the same time share no item: what one outage ends counts once for each.
    """

    def __init__(self) -> None:
        self._ranges: dict[str, list[tuple[int, int]]] = {}
        self._metrics: Counter[str] = Counter()

    def piece(self, dataset: str, first: int, last: int) -> int:
        """Count a failure of the items `first` to `last`; return the most that one of them has."""
        known = self._ranges.setdefault(dataset, [])
        known.append((first, last))
        begins = [a for a, b in known if first <= a < last] + [first]
        return max(sum(a <= at < b for a, b in known) for at in begins)

    def metric(self, dataset: str) -> int:
        """Count a failure of a set's metric; return how many it has."""
        self._metrics[dataset] += 1
        return self._metrics[dataset]
