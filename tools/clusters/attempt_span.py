"""From when until when something is of one start of a job, where the same job was started before or again."""

from __future__ import annotations

from dataclasses import dataclass

from rerail.tools.clusters.slurm_records import AttemptRecord

CLOCKS_DIFFER_S = 60.0
"""How far the clock of a file server may be from that of the controller."""
CLEANED_UP_S = 60.0
"""How long the processes of an attempt may write after its end, until they are killed (KillWait) and all is removed."""


@dataclass(frozen=True, slots=True)
class AttemptSpan:
    """One start of a job, and those before and after it."""

    attempt: AttemptRecord
    previous: AttemptRecord | None = None
    following: AttemptRecord | None = None

    def first_s(self, early_s: float) -> float | None:
        """Return from when on something is of this attempt: up to `early_s` before its start; None: not known."""
        return _first_s(self.attempt, self.previous, early_s)

    def last_s(self, early_s: float, late_s: float | None = None) -> float | None:
        """Return from when on something is of it no more: `late_s` after its end, or as soon as the next one has it."""
        ended = self.attempt.end
        known = [ended + late_s] if ended is not None and late_s is not None else []
        if self.following is not None:
            again = _first_s(self.following, self.attempt, early_s)
            known += [] if again is None else [again]
        return min(known, default=None)

    def of_another(self, written: float) -> str:
        """Say why a file that was last written then does not tell of this attempt, or return nothing."""
        first, again = self.first_s(CLOCKS_DIFFER_S), self.last_s(CLOCKS_DIFFER_S)
        if first is not None and written < first:
            return f"was last written before attempt {self.attempt.attempt} began"
        if self.following is not None and again is not None and written >= again:
            return (
                f"was written again by attempt {self.following.attempt}; what attempt "
                f"{self.attempt.attempt} wrote is overwritten, or stands in front of it"
            )
        return ""


def _first_s(
    attempt: AttemptRecord, previous: AttemptRecord | None, early_s: float
) -> float | None:
    """Between two attempts what the first one may still have written is its own, and not the second one's."""
    if attempt.start is None:
        return None
    first = attempt.start - early_s
    if previous is None or previous.end is None:
        return first
    return min(attempt.start, max(first, previous.end + CLEANED_UP_S))
