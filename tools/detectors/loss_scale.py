"""Collapse of the dynamic loss scale of fp16 training.

A few halvings at the start are how the scale is found; falling to its minimum, or halving many
times without one growth, says that every step overflows.
"""

from __future__ import annotations

import math

import numpy as np

from rerail.domain.series import FloatArray, IntArray
from rerail.tools.detectors.events import Event, EventKind, Stage

HALVINGS = 8  # halvings without a growth between them that are a collapse
MINIMUM = 1.0


def find_scale_collapse(step: IntArray, loss_scale: FloatArray) -> list[Event]:
    """Return one event per fall of the loss scale [n] to its minimum or by 2^HALVINGS in a row.

    A constant scale (bf16 prints 1.0) is no fall. At least two halvings are needed.
    """
    rows = np.flatnonzero(np.isfinite(loss_scale) & (loss_scale > 0))
    events: list[Event] = []
    top = 0
    told = False
    for at in range(1, len(rows)):
        here, last = float(loss_scale[rows[at]]), float(loss_scale[rows[at - 1]])
        if here > last:
            top, told = at, False
            continue
        peak = float(loss_scale[rows[top]])
        halvings = math.log2(peak / here)
        # Many steps on one scale are successful steps: a later halving starts a new fall.
        if here == last and not told and at - top > 20 and halvings < HALVINGS:
            top = at
            continue
        if told or here == last:
            continue
        if (here <= MINIMUM and halvings >= 2) or halvings >= HALVINGS:
            first = int(rows[min(top + 1, at)])
            events.append(
                Event(
                    EventKind.SCALE_COLLAPSE,
                    int(step[first]),
                    int(step[rows[at]]),
                    peak,
                    here,
                    here / peak - 1,
                    Stage.CONFIRMED,
                    first,
                    f"{halvings:.0f} halvings",
                )
            )
            told = True
    return events
