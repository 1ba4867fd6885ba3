"""What shards of logs bring back, put together: surveys, and files that are named and not read."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path

from rerail.late_dataclass import dataclass
from rerail.log_parsers.sources import Problem, Source
from rerail.log_parsers.survey import FileSurvey


@dataclass(slots=True)
class Scanned:
    """The results of all shards; `missing` counts those that nobody delivered."""

    surveys: list[FileSurvey] = field(default_factory=list)
    series: list[tuple[Source, str]] = field(default_factory=list)
    profiles: list[Path] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    missing: int = 0
