"""The one answer that the dumps of a job give: who, at which collective, and why.

What a culprit was doing instead is not in a dump, so a verdict never says more than that a rank
did not arrive, stopped, or called something else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rerail.log_parsers.flight_recorder.model import ProcessGroup

# The values of `rerail.domain.diagnosis.Status`, written out to keep pydantic out of the import.
Firmness = Literal["established", "supported", "hypothesis", "unknown"]
Kind = Literal[
    "missing_rank", "mismatch", "stuck_in_collective", "all_waiting_unknown", "healthy", "unknown"
]


@dataclass(frozen=True, slots=True)
class DumpEvidence:
    """One fact in one dump; `index` is the entry's position in the file, None for no entry."""

    file: str
    rank: int | None
    shows: str
    index: int | None = None


@dataclass(frozen=True, slots=True)
class UnknownRank:
    """A rank about which the dumps say nothing, and why; `file` is empty if there is no file."""

    rank: int
    why: str
    file: str = ""


@dataclass(frozen=True, slots=True)
class DumpVerdict:
    """The one answer for a set of dumps.

    `culprit_ranks` are global and the smallest set that explains the waiting; `suspect_ranks` are
    ranks of which at least one must be at fault, where the dumps cannot tell which. `sequence` is
    the collective's number in `group` (the point-to-point number if `collective` is a send or
    recv). `variants` lists the differing calls of a mismatch with their ranks. `leaf` is a label
    of the taxonomy, None where nothing failed or nothing is known.
    """

    kind: Kind
    status: Firmness
    reason: str
    culprit_ranks: tuple[int, ...] = ()
    suspect_ranks: tuple[int, ...] = ()
    collective: str | None = None
    group: ProcessGroup | None = None
    sequence: int | None = None
    variants: tuple[tuple[str, tuple[int, ...]], ...] = ()
    evidence: tuple[DumpEvidence, ...] = ()
    unknown_ranks: tuple[UnknownRank, ...] = ()
    waiting_ranks: tuple[int, ...] = ()
    world_size: int | None = None
    leaf: str | None = None
