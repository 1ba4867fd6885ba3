"""What a benchmark reports: one measured ratio beside its bar."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: what was measured, against which baseline, and whether the bar is met.

    `measured` is None where the measurement was not possible; `note` then says why.
    """

    bench: str
    what: str
    bar: float
    measured: float | None
    baseline: str
    at_most: bool = False
    unit: str = "x"
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the bar is met; None where nothing was measured."""
        if self.measured is None:
            return None
        return self.measured <= self.bar if self.at_most else self.measured >= self.bar
