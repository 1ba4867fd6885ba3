"""What localisation says: priced findings and one outcome."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Literal


class LocalizeOutcome(StrEnum):
    """The verdict.

    `localized`: a device, link or host stands out. `imbalance`: the time goes into the split of
    the model or into the data, and draining a node cannot help. `no_reference`: so many are slow
    that nobody is left to compare with.
    """

    LOCALIZED = "localized"
    IMBALANCE = "imbalance"
    HEALTHY = "healthy"
    NO_REFERENCE = "no_reference"
    UNEXPLAINED = "unexplained"


@dataclass(frozen=True)
class Finding:
    """One cause with its price.

    `workers` are global ranks. `dimension` is what moved: beta (share of the step), mu (speed) or
    sigma (spread). `ratio` is slow over its like. `lost_s` is over all steps that were seen.
    `layer` is infrastructure where a device, link or host makes such a pattern, and script where
    it comes from the model's split or the data. `where` names mesh coordinates, if known.
    """

    kind: str
    function: str
    workers: tuple[int, ...]
    dimension: str
    reason: str
    ratio: float
    lost_per_step_s: float
    lost_s: float
    layer: Literal["infrastructure", "script"]
    failure_type: str | None = None
    nodes: tuple[str, ...] = ()
    z: float | None = None
    where: tuple[tuple[str, int], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values, times rounded to microseconds."""
        row = asdict(self)
        row["workers"], row["nodes"] = list(self.workers), list(self.nodes)
        row["where"] = dict(self.where)
        for key in ("lost_per_step_s", "lost_s", "ratio", "z"):
            row[key] = None if row[key] is None else round(float(row[key]), 6)
        return row


@dataclass
class Localization:
    """The findings on one input, the most costly first, with what could not be judged and why."""

    name: str
    outcome: LocalizeOutcome
    findings: list[Finding] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the object of contracts, `rerail localize --json`, for this input."""
        return {
            "name": self.name,
            "outcome": str(self.outcome),
            "findings": [one.to_json() for one in self.findings],
            "missing": self.missing,
            **self.details,
        }


def outcome_of(findings: list[Finding]) -> LocalizeOutcome:
    """Return the outcome that findings alone give; none is healthy."""
    if any(one.layer == "infrastructure" for one in findings):
        return LocalizeOutcome.LOCALIZED
    return LocalizeOutcome.IMBALANCE if findings else LocalizeOutcome.HEALTHY
