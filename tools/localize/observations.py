"""What is known of each rank and each communicator, as arrays, however it was measured."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rerail.domain.series import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class GroupTimes:
    """The communicators of one kind and size.

    `members` (groups, size) holds indices of ranks. `transfer_s` (steps, groups): the time the
    collectives of a step took once all members were there, which is the shortest duration among
    the members, summed. `late_s` (steps, groups, size): how much later than the typical member
    each one arrived, summed over the step; the last to arrive waits least. `first_share` is the
    share of instances in which a member waited least, and `instances` (groups,) how many all members
    were seen in, None where that is not known. `role` compares like with like: link
    groups only with groups of the same role.
    """

    kind: str
    members: IntArray
    transfer_s: FloatArray
    late_s: FloatArray | None = None
    first_share: FloatArray | None = None
    role: IntArray | None = None
    names: tuple[str, ...] = ()
    instances: IntArray | None = None


@dataclass(frozen=True, eq=False)
class JobTimes:
    """A window of one job.

    `ranks` (n,) are global ranks; `self_s` (steps, n) is what a rank computed itself, without
    waiting, or None; `role` (n,) numbers ranks that do the same work (pipeline stage, expert
    or context-parallel position); `node` (n,) host names or None. `step_s` (steps,) is the step
    time where it is known. `device_times` says that `self_s` is time of the device itself and not
    of the process, which a busy host stretches as well.
    """

    name: str
    ranks: IntArray
    role: IntArray
    self_s: FloatArray | None = None
    node: tuple[str, ...] | None = None
    groups: list[GroupTimes] = field(default_factory=list)
    step_s: FloatArray | None = None
    steps: int = 1
    role_known: bool = True
    device_times: bool = True

    def node_index(self) -> IntArray | None:
        """Return a number for each rank's node, or None where nodes are unknown."""
        if self.node is None:
            return None
        _, index = np.unique(np.array(self.node), return_inverse=True)
        return index.astype(np.int64)


def group_instances(
    durations_s: FloatArray, step: IntArray, steps: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Reduce the instances of one communicator to (transfer, lateness, share of least waits).

    `durations_s` (instances, size), NaN where a member's record is missing; `step` (instances,)
    numbers steps from 0. Transfer is the shortest duration, lateness the typical wait less the
    own wait. Returns (steps,), (steps, size) and (size,).
    """
    transfer = np.zeros(steps)
    late = np.zeros((steps, durations_s.shape[1]))
    known = np.isfinite(durations_s).all(axis=1)
    rows = durations_s[known]
    at = step[known]
    if not len(rows):
        return np.full(steps, np.nan), np.full_like(late, np.nan), np.zeros(durations_s.shape[1])
    np.add.at(transfer, at, rows.min(axis=1))
    np.add.at(late, at, np.median(rows, axis=1)[:, None] - rows)
    first = np.bincount(rows.argmin(axis=1), minlength=rows.shape[1]) / len(rows)
    share: NDArray[np.float64] = first
    return transfer, late, share
