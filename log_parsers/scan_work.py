"""Logs as work for shards: each file becomes its survey; files of series and profiles are only named."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rerail.errors import EvidenceError
from rerail.log_parsers.collect import ScanPlan, plan_for, scanner_for
from rerail.log_parsers.rotated import joined
from rerail.log_parsers.scan import Signature
from rerail.log_parsers.scanned import Scanned
from rerail.log_parsers.series_files.recognise import kind_of
from rerail.log_parsers.sources import STDIN, Discovery, Source, discover
from rerail.log_parsers.survey import survey
from rerail.log_parsers.survey_rows import (
    problem_of,
    problem_row,
    source_of,
    source_row,
    survey_of,
    survey_row,
)

KIND = "logs"
_SURVEY, _SERIES, _PROFILE, _PROBLEM = range(4)


def work_name(signatures: Sequence[Signature]) -> str:
    """Return the name of the work with these rules: what other rules scanned cannot be read with them."""
    rules = hashlib.sha256(repr([(s.pattern, s.presence) for s in signatures]).encode())
    return f"{KIND} {rules.hexdigest()[:12]}"


@dataclass(frozen=True)
class LogWork:
    """Surveys the logs of one job; what it finds depends on the files of a shard and on the plan alone."""

    name: str
    plan: ScanPlan
    sources: dict[str, Source] = field(default_factory=dict)
    beside: tuple[tuple[int, Any], ...] = ()

    @classmethod
    def of(cls, name: str) -> LogWork:
        """Return the work of this name, to merge what others scanned."""
        return cls(name, ScanPlan(()))

    def scan(self, files: Sequence[str]) -> list[Any]:
        """Return the surveys of the files as JSON values, and what every shard knows of the job."""
        rows: list[Any] = [{"is": what, "row": row} for what, row in self.beside]
        size = sum(self.sources[file].size for file in files)
        for file in files:
            source = self.sources[file]
            kind = kind_of(source)
            if kind is not None:
                rows.append({"is": _SERIES, "row": [source_row(source), kind]})
                continue
            plan, scanner = self.plan, scanner_for(self.plan, size)
            found = survey(source, plan.signatures, scanner, room=plan.room)
            rows.append({"is": _SURVEY, "row": survey_row(found)})
        return rows

    def key(self, row: Any) -> Any:
        """Return what kind of row it is, and which file it is of."""
        of = row["row"]
        if row["is"] in (_SURVEY, _SERIES):
            source = of["source"] if row["is"] == _SURVEY else of[0]
            return [row["is"], source["name"], source["path"]]
        return [row["is"], *(of if isinstance(of, list) else [of])]


def log_work(arguments: Iterable[str | Path], plan: ScanPlan) -> tuple[LogWork, list[str]]:
    """Return the work that reads these logs, and the names of all its files.

    Every shard looks for the files itself; which there are decides how much is kept of each.

    Raises:
        EvidenceError: there is none, or standard input was named.
    """
    found: Discovery = discover(arguments)
    if any(one.path is None for one in found.sources):
        raise EvidenceError(
            "standard input cannot be scanned in shards", subject=STDIN,
            hint="rerail scan --logs FOLDER --out SHARED",
        )  # fmt: skip
    if not found.sources:
        first = found.problems[0] if found.problems else None
        raise EvidenceError(
            f"{first.subject}: {first.why}" if first else "the folder holds no log files",
            subject=first.subject if first else "", hint="name the job's log folder",
        )  # fmt: skip
    found.sources = joined(found.sources)
    sources = {str(source_row(one)["path"]): one for one in found.sources}
    beside: list[tuple[int, Any]] = [(_PROFILE, str(path)) for path in found.profiles]
    beside += [(_PROBLEM, problem_row(one)) for one in found.problems]
    plan = replace(plan_for(plan, len(found.sources)), mine=False)
    return LogWork(work_name(plan.signatures), plan, sources, tuple(beside)), list(sources)


def scanned_of(rows: Sequence[Any], where: str) -> Scanned:
    """Return what merged rows hold.

    Raises:
        EvidenceError: a row is damaged.
    """
    out = Scanned()
    for row in rows:
        try:
            what, of = row["is"], row["row"]
            if what == _SURVEY:
                out.surveys.append(survey_of(of, where))
            elif what == _SERIES:
                out.series.append((source_of(of[0]), str(of[1])))
            elif what == _PROFILE:
                out.profiles.append(Path(of))
            else:
                out.problems.append(problem_of(of))
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise EvidenceError(
                f"{where}: what was scanned is damaged ({type(error).__name__}: {error})",
                subject=where, hint="scan the logs again: rerail scan --logs LOGS --out FOLDER",
            ) from None  # fmt: skip
    return out
