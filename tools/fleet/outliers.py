"""Which of many nodes, switches or users had more failures than chance gives the worst of so many.

Under chance each failure falls on one of them in proportion to its exposure. The most failures among
1,000 healthy nodes are many, so each is held against all (Holm's step-down correction, Scandinavian
Journal of Statistics 6, 1979): of 100 sites of healthy nodes, 95 or more have none that stands out. One that
stands out is taken away and the others are tested anew, since its failures raised what is expected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

LEVEL = 0.05 / 3
"""Nodes, switches and users are three lists: together 5 of 100 healthy sites have a name in one of them."""


@dataclass(frozen=True, slots=True)
class Counted:
    """One node, switch or user: failures, those expected by chance, and the probability of so many.

    `chance` is corrected for how many were compared: about how often the worst of as many healthy
    ones comes out like that.
    """

    name: str
    failures: int
    expected: float
    chance: float

    @property
    def stands_out(self) -> bool:
        """Whether chance does not explain it."""
        return self.chance <= LEVEL


def by_time(failures: Mapping[str, int], exposure: Mapping[str, float]) -> list[Counted]:
    """Judge counts of failures that come at any time (binomial); exposure in hours of work.

    Returns the items with failures, those that stand out first.
    """
    from scipy.stats import binom

    def chance(counts: Array, left: Array) -> Array:
        return np.asarray(binom.sf(counts - 1, counts.sum(), left / left.sum()))

    return _judged(failures, exposure, chance)


def by_job(failures: Mapping[str, int], jobs: Mapping[str, int]) -> list[Counted]:
    """Judge how many of somebody's jobs failed, each at most once (hypergeometric).

    Returns the items with failures, those that stand out first.
    """
    from scipy.stats import hypergeom

    def chance(counts: Array, left: Array) -> Array:
        return np.asarray(hypergeom.sf(counts - 1, left.sum(), counts.sum(), left))

    return _judged(failures, jobs, chance)


def _judged(
    failures: Mapping[str, int],
    exposure: Mapping[str, float],
    chance: Callable[[Array, Array], Array],
) -> list[Counted]:
    names = [name for name, hours in exposure.items() if hours > 0]
    left = np.array([exposure[name] for name in names], dtype=float)
    counts = np.array([failures.get(name, 0) for name in names], dtype=float)
    found: list[Counted] = []
    while counts.sum() > 0:
        expected = counts.sum() * left / left.sum()
        corrected = np.minimum(1.0, chance(counts, left) * len(names))
        rows = [
            Counted(names[at], int(counts[at]), float(expected[at]), float(corrected[at]))
            for at in np.flatnonzero(counts)
        ]
        worst = min(rows, key=lambda one: one.chance)
        if not worst.stands_out or len(names) < 2:
            rest = sorted(rows, key=lambda one: (one.chance, -one.failures, one.name))
            return found + rest
        found.append(worst)
        at = names.index(worst.name)
        names.pop(at)
        left, counts = np.delete(left, at), np.delete(counts, at)
    return found
