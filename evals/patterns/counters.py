"""Samples of link use as a site's counters show them, for simulated traces."""

from __future__ import annotations

import numpy as np

from rerail.domain.series import FloatArray
from rerail.tools.profiles.trace import Samples

_EVERY_US = 250.0
_TRANSFER_US = 3800.0


def link_samples(
    random: np.random.Generator, start: FloatArray, took: FloatArray, names: list[str], *,
    culprit: bool, slow_ring: bool,
) -> Samples:  # fmt: skip
    """Return network-adapter use at 4 kHz: zero while waiting, bursts on the peers of a slow link.

    On the worker at the slow link the use is low and steady; its peers send at full speed and then
    wait for it.
    """
    at = np.arange(start.min(), (start + took).max(), _EVERY_US)
    use = np.zeros(len(at))
    for begin, length, name in zip(start, took, names, strict=True):
        if "ReduceScatter" not in name and "AllGather" not in name:
            continue
        first, last = np.searchsorted(at, (begin, begin + length))
        count = last - first
        if not slow_ring:
            moving = min(count, max(1, round(_TRANSFER_US / _EVERY_US)))
            values = 0.85 + 0.05 * random.standard_normal(moving)
        elif culprit:
            moving = count
            values = 0.3 + 0.02 * random.standard_normal(moving)
        else:
            moving = count
            values = np.where(random.random(moving) < 0.35, 0.9, 0.0)
            values = values + 0.02 * np.abs(random.standard_normal(moving))
        use[last - moving : last] = np.clip(values, 0, 1)
    return Samples(at, {"nic": use})
