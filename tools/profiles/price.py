"""What a sign costs: the steps replayed without it.

All workers of a role meet in the collectives of a step, so the step is as long as its slowest
member. A sign is priced by how much earlier that member would be there without it, the dearest sign
first, so that the prices add up.
"""

from __future__ import annotations

import numpy as np

from rerail.domain.series import FloatArray
from rerail.tools.profiles.function_table import DEVICE_COMPUTE
from rerail.tools.profiles.host_noise import undisturbed
from rerail.tools.profiles.matrix import ProfileMatrix
from rerail.tools.profiles.signs import Sign

_OWN = (*DEVICE_COMPUTE, "memory", "host", "loader", "checkpoint", "collector")


def price(matrix: ProfileMatrix, signs: list[Sign]) -> list[tuple[Sign, float]]:
    """Return the signs with the seconds per step that each costs, the dearest first."""
    if matrix.by_step_s is None:
        return [(sign, float(sign.extra_s.mean(axis=0).max())) for sign in signs]
    # On a device what runs is a rank's own; without one, a sleep leaves no event and is its own as well.
    own = matrix.seconds(matrix.of_class(*_OWN)) if matrix.device else undisturbed(matrix)
    left = list(signs)
    out: list[tuple[Sign, float]] = []
    while left:
        costs = [_saved(matrix, own, sign) for sign in left]
        at = int(np.argmax(costs))
        sign = left.pop(at)
        out.append((sign, costs[at]))
        if sign.members is None:
            own[:, sign.workers] -= np.minimum(sign.extra_s, own[:, sign.workers])
    return sorted(out, key=lambda one: -one[1])


def _saved(matrix: ProfileMatrix, own: FloatArray, sign: Sign) -> float:
    if sign.members is not None:
        return float(sign.extra_s.max(axis=1).mean())
    if sign.kind == "memory":
        # Copies are in the way of the network as well, which own work does not show.
        return float(sign.extra_s.max(axis=1).mean())
    saved = 0.0
    for role in np.unique(matrix.role[sign.workers]):
        mine = np.flatnonzero(matrix.role == role)
        inside = np.isin(sign.workers, mine)
        before = own[:, mine].max(axis=1)
        after = own[:, mine].copy()
        at = np.searchsorted(mine, sign.workers[inside])
        after[:, at] -= np.minimum(sign.extra_s[:, inside], after[:, at])
        saved = max(saved, float((before - after.max(axis=1)).mean()))
    return saved
