"""What a busy host does to processes without a device, so that no rank is blamed for it.

Ranks of one host share its cores. A thread that is ready and gets none loses time in whatever function it
happens to be; the kernel counts that time (`run_delay` of /proc/thread-self/schedstat, nanoseconds;
Documentation/scheduler/sched-stats.rst of Linux), and the collector keeps it for each step.
"""

from __future__ import annotations

import numpy as np

from rerail.domain.series import FloatArray, IntArray
from rerail.tools.profiles.matrix import ProfileMatrix

_LONGER = 0.9
_MOST_PEERS = 200
BESIDE_FIRST = 0.25
"""What one rank loses, the others of its host lose in part as well: less of it than this is no finding."""


def core_wait(matrix: ProfileMatrix) -> FloatArray:
    """Return the seconds (S, W) that a worker waited for a core which it shares with other workers.

    Alone on its host, a worker that waits is held up by something that is worth a finding, so it counts 0;
    so do all workers where the profiles do not hold the time.
    """
    if matrix.cpu_wait_s is None:
        return np.zeros_like(matrix.own_s)
    _, at, count = np.unique(np.array(matrix.host), return_inverse=True, return_counts=True)
    shared = count[at] > 1
    return np.where(shared[None, :], matrix.cpu_wait_s, 0.0)


def undisturbed(matrix: ProfileMatrix) -> FloatArray:
    """Return the workers' own time (S, W) in seconds without their waits for a shared core."""
    return np.maximum(matrix.own_s - core_wait(matrix), 0.0)


def longer(total: FloatArray, who: IntArray, role: IntArray) -> IntArray:
    """Return those of `who` whose steps are longer than nine in ten steps of their peers, pair by pair.

    `total` (S, W) are seconds. Peers are the workers of the same role that are not in `who`. Medians
    over a few steps differ by chance; of six steps of equal workers this holds once in a thousand
    (Mann and Whitney, 1947).
    """
    return np.array([w for w in who.tolist() if _longer(total, w, who, role)], dtype=np.int64)


def not_beside(matrix: ProfileMatrix, who: IntArray, extra: FloatArray) -> IntArray:
    """Return those of `who` whose excess (n,) is no small part of that of another on the same host."""
    hosts = np.array(matrix.host)[who]
    most = [extra[hosts == host].max() for host in hosts.tolist()]
    return who[extra >= BESIDE_FIRST * np.array(most)] if len(who) else who


def _longer(total: FloatArray, worker: int, who: IntArray, role: IntArray) -> bool:
    peers = np.setdiff1d(np.flatnonzero(role == role[worker]), who)[:_MOST_PEERS]
    if not len(peers):
        return True
    above = total[:, worker][:, None] > total[:, peers].reshape(1, -1)
    return float(above.mean()) >= _LONGER
