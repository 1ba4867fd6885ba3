"""What a training loop needs for S2: measure, agree on a split, weight gradients.

No framework is imported. Each data-parallel group trains on `count` of the step's micro-batches, adds
their gradients up, and the sum over all groups is divided by the total; so the update equals that
of the unsplit step whatever the split. Which micro-batches a group takes follows from the counts
alone, so every rank agrees on the data without talking.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rerail.errors import RecoveryError
from rerail.recovery.mitigation.micro_batches import makespan_s, split
from rerail.recovery.mitigation.orders import read_order

Gather = Callable[[float], Sequence[float]]
"""Gives one number to all groups and returns everybody's, in the order of their indices."""


@dataclass
class MicroBatchPlan:
    """The split that one group follows; equal on all groups because all compute it from equal numbers.

    `gather` is `torch.distributed.all_gather_object` or the like, called every `every` steps.
    A new split is taken only if it shortens the step by more than `least_gain` (hysteresis).

    With `orders` the split follows that file (`rerail watch` writes it, an approval may stand
    before it) and never changes by itself; `record` then tells rerail what the groups measured.
    """

    group: int
    groups: int
    total: int
    gather: Gather
    every: int = 5
    least_gain: float = 0.05
    record: Path | None = None
    orders: Path | None = None
    counts: list[int] = field(default_factory=list)
    changes: list[tuple[int, list[int]]] = field(default_factory=list)
    _times: list[float] = field(default_factory=list)
    _step: int = 0
    _order: int = 0

    def __post_init__(self) -> None:
        if self.total % self.groups:
            raise RecoveryError(
                f"{self.total} micro-batches are no multiple of {self.groups} groups",
                subject="total",
            )
        self.counts = [self.total // self.groups] * self.groups

    @property
    def mine(self) -> range:
        """The numbers of this group's micro-batches within the step, 0 to total - 1."""
        first = sum(self.counts[: self.group])
        return range(first, first + self.counts[self.group])

    @property
    def gradient_divisor(self) -> int:
        """What the sum of gradients over all groups and micro-batches is divided by."""
        return self.total

    def ran(self, micro_batch_s: float) -> None:
        """Note the time of one micro-batch, without waiting for others."""
        self._times.append(micro_batch_s)

    def after_step(self) -> bool:
        """Exchange times when it is due; return whether the split changed for the next step."""
        self._step += 1
        if self._step % self.every:
            return False
        typical = statistics.median(self._times) if self._times else 0.0
        self._times.clear()
        times = list(self.gather(typical))
        if min(times) <= 0:
            return False
        if self.orders is not None:
            changed = self._follow(self.orders)
            self._note(times)
            return changed
        wanted = split(times, self.total)
        gain = 1.0 - makespan_s(times, wanted) / makespan_s(times, self.counts)
        if wanted == self.counts or gain <= self.least_gain:
            return False
        self.counts = wanted
        self.changes.append((self._step, wanted))
        self._note(times)
        return True

    def _follow(self, orders: Path) -> bool:
        """Take an order up once every group has read the same one; return whether it is new."""
        try:
            order = read_order(orders)
        except RecoveryError:
            order = None  # a damaged file orders nothing
        known = 0 if order is None else order.number
        seen = list(self.gather(float(known)))
        # Files reach hosts at different times: until all see one order, nobody follows it.
        if order is None or min(seen) != max(seen) or known == self._order:
            return False
        fits = len(order.micro_batches) == self.groups and sum(order.micro_batches) == self.total
        self._order = known
        if not fits or list(order.micro_batches) == self.counts:
            return False
        self.counts = list(order.micro_batches)
        self.changes.append((self._step, self.counts))
        return True

    def _note(self, times: list[float]) -> None:
        if self.record is not None and self.group == 0:
            body = {"step": self._step, "unit_time_s": times, "micro_batches": self.counts}
            with self.record.open("a", encoding="utf-8") as out:
                out.write(json.dumps(body) + "\n")
