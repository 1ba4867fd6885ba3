"""What a line of reasoning over symptoms comes to."""

from __future__ import annotations

from rerail.domain.diagnosis import Status
from rerail.domain.evidence import LogLine
from rerail.late_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Conclusion:
    """A cause concluded from symptoms; `beside` are further lines that the conclusion rests on."""

    leaf: str
    line: LogLine
    status: Status
    why: str
    ranks: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()
    action: str | None = None
    beside: tuple[LogLine, ...] = ()
    silence: str = ""
    """For how long nothing was printed, where that is all that tells of the failure."""
