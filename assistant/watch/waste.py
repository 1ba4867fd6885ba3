"""How much time a job has lost to its slowest group, from what it reports while it runs."""

from __future__ import annotations

from dataclasses import dataclass

from rerail.recovery.mitigation.micro_batches import makespan_s, split
from rerail.recovery.mitigation.orders import Measured


@dataclass
class Waste:
    """Adds up, over the reports of one job, the seconds that a better split would have saved.

    Relief forgets what was lost before, and so does another split: a phase that is over, or that
    was acted on, is no reason to act.
    """

    lost_s: float = 0.0
    _step: int | None = None
    _split: tuple[int, ...] = ()

    def add(self, measured: Measured, least_gain_ratio: float) -> float:
        """Take one report; return the seconds lost so far in the present slow phase."""
        speeds = measured.speeds
        before, self._step = self._step, measured.step
        if speeds.micro_batches != self._split:
            self.lost_s, self._split, before = 0.0, speeds.micro_batches, None
        present = makespan_s(speeds.unit_time_s, speeds.micro_batches)
        best = makespan_s(speeds.unit_time_s, split(speeds.unit_time_s, sum(speeds.micro_batches)))
        if present - best < least_gain_ratio * present:
            self.lost_s = 0.0
        elif before is not None and measured.step > before:
            self.lost_s += (measured.step - before) * (present - best)
        return self.lost_s
