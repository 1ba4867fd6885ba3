"""A trial while it runs: which of its pieces it has begun, and taking back those that it has not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rerail.recovery.evaluation.files import claim
from rerail.tools.evaluation.plan import Piece, Trial


@dataclass
class RunningTrial:
    """What was asked of a trial, in its folder, and which pieces were taken back since."""

    folder: Path
    asked: Trial
    taken: set[int] = field(default_factory=set)

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """Return the pieces that are this trial's, in order."""
        return tuple(p for i, p in enumerate(self.asked.pieces) if i not in self.taken)

    def coming(self) -> list[int]:
        """Return the numbers of the pieces that are still this trial's and not begun."""
        return [
            i
            for i in range(len(self.asked.pieces))
            if i not in self.taken and not (self.folder / f"claim-{i}").exists()
        ]

    def has_begun(self, piece: Piece) -> bool:
        """Return whether the trial has begun this piece."""
        return (self.folder / f"claim-{self.asked.pieces.index(piece)}").exists()

    def coming_s(self, factor: Mapping[str, float], planned: Mapping[str, float]) -> float:
        """Return the seconds of what is not begun, by the times that were seen since it was planned."""
        coming = [self.asked.pieces[i] for i in self.coming()]
        return sum(
            p.seconds * factor.get(p.dataset, 1.0) / planned.get(p.dataset, 1.0) for p in coming
        )

    def take_back(self) -> None:
        """Take every piece that is not begun; what the trial claims in this moment stays its own."""
        self.taken |= {i for i in self.coming() if claim(self.folder, i)}
