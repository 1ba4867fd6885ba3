"""What stands out in a window, before anything is said of its cause."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from rerail.domain.series import FloatArray, IntArray
from rerail.tools.profiles.matrix import ProfileMatrix

WHOLE_NODE = 0.75
WHOLE_JOB = 0.8


@dataclass(frozen=True, eq=False)
class Sign:
    """One function (or all compute) that behaves differently on some workers.

    `kind` is what was compared: device (all compute kernels alike), function, memory, host, loader,
    collector, checkpoint, unsteady, stage, transfer, ring_member or expected. `extra_s` (S, workers)
    are the seconds of each step above the reference. `members` are all workers of the process group, if
    the sign is of one. `facts` are further words for the table of causes.
    """

    kind: str
    function: str
    work: str
    workers: IntArray
    dimension: str
    ratio: float
    extra_s: FloatArray
    seen: str
    z: float | None = None
    members: IntArray | None = None
    facts: frozenset[str] = field(default_factory=frozenset)


def spread(matrix: ProfileMatrix, workers: IntArray) -> str:
    """Return how far a set of workers reaches: one, node, role, all or many."""
    count = len(matrix.ranks)
    if len(workers) >= max(2, WHOLE_JOB * count):
        return "all"
    if len(workers) == 1:
        return "one"
    if whole_nodes(matrix, workers):
        return "node"
    roles = np.unique(matrix.role[workers])
    if len(roles) == 1 and len(workers) >= WHOLE_JOB * int((matrix.role == roles[0]).sum()):
        return "role"
    return "many"


def whole_nodes(matrix: ProfileMatrix, workers: IntArray) -> tuple[str, ...]:
    """Return the hosts that hold all these workers if at least three quarters of each are in it."""
    if not all(matrix.host[int(w)] for w in workers):
        return ()
    hosts = np.array(matrix.host)
    mine, count = np.unique(hosts[workers], return_counts=True)
    names, total = np.unique(hosts, return_counts=True)
    of = dict(zip(names.tolist(), total.tolist(), strict=True))
    share = [n / of[host] for host, n in zip(mine.tolist(), count.tolist(), strict=True)]
    several = all(of[host] > 1 for host in mine.tolist())
    return tuple(mine.tolist()) if several and min(share) >= WHOLE_NODE else ()
