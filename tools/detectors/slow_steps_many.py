"""Slow steps of many series at once: one vector step for all, a closer look at few.

Every series is judged exactly as by `SlowStepDetector`; rows of a series that cannot alarm yet are
only summed in vector form and handed to its detector when a chunk is full or something stirs.
"""

from __future__ import annotations

import numpy as np

from rerail.domain.series import FloatArray, IntArray
from rerail.tools.detectors.baseline import ALLOWANCE, CHUNK, CLIP, QUANTUM
from rerail.tools.detectors.events import Event
from rerail.tools.detectors.slow_steps import SlowStepDetector


class SlowStepBank:
    """Judges n series, one step of all at a time (`update`); a series may skip steps (NaN)."""

    def __init__(self, n: int) -> None:
        self.detectors = [SlowStepDetector() for _ in range(n)]
        self._rows = np.zeros((n, CHUNK))
        self._steps = np.zeros((n, CHUNK), dtype=np.int64)
        self._count = np.zeros(n, dtype=np.int64)
        self._room = np.ones(n, dtype=np.int64)
        self._m = np.zeros(n)
        self._delta = np.ones(n)
        self._h = np.zeros(n)
        self._limit = np.zeros(n)
        self._return = np.full(n, -np.inf)
        self._up = np.zeros(n)
        self._down = np.zeros(n)
        self._far = np.zeros(n)
        self._close_look = np.ones(n, dtype=bool)

    def __len__(self) -> int:
        return len(self.detectors)

    def update(self, step: int | IntArray, step_time_s: FloatArray) -> list[tuple[int, Event]]:
        """Take one step of every series [n] and return (series, event) for what was raised.

        Times that are not positive and finite are not known and are left out.
        """
        good = np.isfinite(step_time_s) & (step_time_s > 0)
        value = np.log(np.where(good, step_time_s, 1.0))
        rows = np.flatnonzero(good)
        self._rows[rows, self._count[rows]] = np.where(good, step_time_s, 1.0)[rows]
        self._steps[rows, self._count[rows]] = np.broadcast_to(step, len(self))[rows]
        self._count[rows] += 1
        error = value - self._m
        score = np.rint(np.clip(error / self._delta, -CLIP, CLIP) * QUANTUM) / QUANTUM
        self._up = np.where(good, np.maximum(0.0, self._up + score - ALLOWANCE), self._up)
        self._down = np.where(good, np.maximum(0.0, self._down - score - ALLOWANCE), self._down)
        far = np.where(np.abs(error) > self._limit, np.sign(error), 0.0)
        stirred = (self._up >= self._h) | (self._down >= self._h)
        stirred |= (far != 0) & (far == self._far)
        stirred |= self._close_look | (value < self._return) | (self._count >= self._room)
        self._far = np.where(good, far, self._far)
        found: list[tuple[int, Event]] = []
        for number in np.flatnonzero(stirred & good):
            found += [(int(number), event) for event in self._look(int(number))]
        return found

    def finish(self) -> list[tuple[int, Event]]:
        """Hand over all rows that wait; the detectors' events are then complete."""
        waiting = np.flatnonzero(self._count)
        return [(int(n), event) for n in waiting for event in self._look(int(n))]

    def _look(self, number: int) -> list[Event]:
        detector = self.detectors[number]
        count = int(self._count[number])
        found = detector.run(self._steps[number, :count], self._rows[number, :count])
        level = detector.level
        self._count[number] = 0
        self._m[number], self._delta[number], self._h[number] = level.m, level.delta, level.h
        self._limit[number], self._return[number] = level.limit, level.return_limit
        self._up[number], self._down[number] = detector.up, detector.down
        self._far[number] = detector.outlier_sign
        self._room[number] = CHUNK - (detector.rows - detector.chunk_from)
        self._close_look[number] = detector.watchful
        return found
