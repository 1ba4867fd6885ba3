"""Silent data corruption: equal work must give equal bits on equal devices.

Between jobs: the bitwise digest of one fixed computation, compared between devices of one model; the
majority is right (full coverage). Inside a job: a checksum of a matrix product, a few per cent of
its cost, that finds large errors only (algorithm-based fault tolerance, Huang and Abraham 1984).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Majority:
    """Devices whose result differs from that of most, or why nobody can be named."""

    wrong: tuple[str, ...] = ()
    unstable: tuple[str, ...] = ()
    abstained: str = ""


def by_majority(digests: Mapping[str, tuple[str, ...]]) -> Majority:
    """Judge the digests that each device gave for repeats of one computation.

    A device that disagrees with itself is faulty whatever the others say. Of the rest, those outside
    a strict majority of at least two differ from what is right; without one nobody is named.
    """
    unstable = tuple(sorted(name for name, seen in digests.items() if len(set(seen)) > 1))
    steady = {name: seen[0] for name, seen in digests.items() if seen and len(set(seen)) == 1}
    counts = Counter(steady.values())
    if not counts:
        return Majority((), unstable, "no device gave the same bits twice")
    value, votes = counts.most_common(1)[0]
    if len(counts) > 1 and (votes < 2 or 2 * votes <= len(steady)):
        return Majority((), unstable, "no strict majority of devices agrees")
    return Majority(tuple(sorted(n for n, d in steady.items() if d != value)), unstable)


def product_is_consistent(left: Any, right: Any, product: Any, tolerance: float) -> bool:
    """Return whether a matrix product [n, m] agrees with its column sums, within `tolerance`.

    (e^T A) B = e^T C. `tolerance` is relative to the sums of absolute values; numpy arrays, or
    anything that numpy can read.
    """
    a, b, c = (np.asarray(one, dtype=np.float64) for one in (left, right, product))
    wanted = a.sum(axis=0) @ b
    scale = np.abs(a).sum(axis=0) @ np.abs(b) + np.finfo(np.float64).tiny
    return bool(np.all(np.abs(wanted - c.sum(axis=0)) <= tolerance * scale))
