"""When to do more about a slow phase: by what it has cost so far (ski rental).

Nobody knows how long a slow phase lasts. Each remedy is applied once the time that it would have
saved so far equals its cost; so the total is at most twice what somebody would have paid who knew
the length (one remedy; Karlin et al. 1988). FALCON compares the whole loss, also the part that a
remedy in force already saves, and never forgets; here only the avoidable part counts, relief cancels
it, and a pure communication fault never leads to micro-batches being moved.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Remedy(StrEnum):
    """What can be done, in the order of cost."""

    IGNORE = "ignore"
    MICRO_BATCHES = "micro_batches"
    PLACEMENT = "placement"
    RESTART = "restart"


class Cause(StrEnum):
    """What kind of part is slow."""

    COMPUTE = "compute"
    COMMUNICATION = "communication"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Option:
    """A remedy: what applying it costs once, and which share of the excess time it leaves."""

    remedy: Remedy
    cost_s: float
    leaves_ratio: float


def usable(options: list[Option], cause: Cause) -> list[Option]:
    """Return the options that can help against a cause, by rising cost; dominated ones are left out."""
    fitting = [
        one
        for one in options
        if not (cause is Cause.COMMUNICATION and one.remedy is Remedy.MICRO_BATCHES)
    ]
    kept: list[Option] = []
    for one in sorted(fitting, key=lambda o: (o.cost_s, o.leaves_ratio)):
        if not kept or one.leaves_ratio < kept[-1].leaves_ratio:
            kept.append(one)
    return kept


@dataclass
class Escalation:
    """Decides for one slow phase; call `step` after every training step.

    `at_once_s`: remedies cheaper than this are applied at the first slow step. `relief_steps`: so
    many healthy steps in a row end the phase (hysteresis); what was applied is then to be taken
    back, which `over` says. `slow_ratio`: a step is slow above this multiple of the healthy time.
    """

    options: list[Option]
    cause: Cause
    healthy_s: float
    at_once_s: float = 0.0
    relief_steps: int = 3
    slow_ratio: float = 1.1
    applied: Remedy = Remedy.IGNORE
    over: bool = False
    _saved_s: dict[Remedy, float] = field(default_factory=dict)
    _calm: int = 0

    def step(self, time_s: float, excess_s: float | None = None) -> Remedy | None:
        """Take one step's time; return the remedy to apply now, or None.

        `excess_s` is what the step would cost above healthy without any remedy; unknown (None), it
        is inferred from the step's time and what the remedy in force is expected to leave.
        """
        if self.over:
            return None
        leaves = {one.remedy: one.leaves_ratio for one in self.options}
        present = leaves.get(self.applied, 1.0)
        above = max(0.0, time_s - self.healthy_s)
        plain = above / max(present, 0.05) if excess_s is None else excess_s
        if self.healthy_s + plain <= self.slow_ratio * self.healthy_s:
            self._calm += 1
            if self._calm >= self.relief_steps:
                self.over = True
                self._saved_s.clear()
            return None
        self._calm = 0
        choice: Option | None = None
        for one in usable(self.options, self.cause):
            better = present - one.leaves_ratio
            if better <= 0:
                continue
            saved = self._saved_s.get(one.remedy, 0.0) + better * plain
            self._saved_s[one.remedy] = saved
            # A hair of rounding must not delay the step that reaches the cost exactly.
            if saved >= one.cost_s * (1 - 1e-9) or one.cost_s <= self.at_once_s:
                choice = one
        if choice is None:
            return None
        self.applied = choice.remedy
        return choice.remedy
