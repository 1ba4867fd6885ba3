"""Narrows a diagnosis to one rank or to what happened since a time, as the command line asks."""

from __future__ import annotations

import time

from rerail.errors import UsageError
from rerail.knowledge_base.matcher import MatchResult
from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy
from rerail.log_parsers.timestamps import find_stamp
from rerail.log_parsers.view import LogView

_AGO = lazy(r"(?P<n>\d+(?:\.\d+)?)\s*(?P<unit>[smhd])(?:\s+ago)?$")
_UNIT = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@dataclass(frozen=True, slots=True)
class Narrow:
    """Which observations count: those of one rank, those since a time (epoch seconds)."""

    rank: int | None = None
    since: float | None = None

    @classmethod
    def parse(cls, *, rank: int | None, since: str | None) -> Narrow:
        """Read the options of the command line.

        Raises:
            UsageError: for a time that cannot be read.
        """
        return cls(rank, None if since is None else _since(since))

    def apply(self, views: list[LogView], found: MatchResult) -> MatchResult:
        """Return the observations that count; a line without a rank or time counts."""
        if self.rank is None and self.since is None:
            return found
        by_name = {view.name: view for view in views}
        kept = []
        for observation in found.observations:
            line = observation.line
            if self.rank is not None and line.rank is not None and line.rank != self.rank:
                continue
            if self.since is not None:
                when = by_name[line.file].time_near(line.number)
                if when is not None and when < self.since:
                    continue
            kept.append(observation)
        return MatchResult(kept, found.counts)


EVERYTHING = Narrow()


def _since(text: str) -> float:
    ago = _AGO.fullmatch(text.strip())
    if ago:
        return time.time() - float(ago["n"]) * _UNIT[ago["unit"]]
    stamp = find_stamp(text, year=time.gmtime().tm_year)
    if stamp is None:
        stamp = find_stamp(f"{text} 00:00:00", year=time.gmtime().tm_year)
    if stamp is None:
        raise UsageError(
            f"--since {text!r} is no time",
            subject=text,
            hint="--since '2026-03-01 02:00:00' or --since 2h",
        )
    return stamp.seconds
