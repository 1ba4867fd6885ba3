"""`rerail diagnose --follow`: watches the logs of a live job and tells when its verdict changes.

Files are polled and only what is new in them is read. A file that was rotated (another inode) or truncated
(it became smaller) begins a new chapter: what was read of it before no longer counts, nor does the part that
was moved away.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from rerail.domain.diagnosis import Diagnosis
from rerail.errors import EvidenceError
from rerail.log_parsers.collect import assemble, scanner_for
from rerail.log_parsers.following import FollowedFile
from rerail.log_parsers.sources import Source, discover

POLL_S = 2.0


@dataclass(slots=True)
class _Files:
    """The files of the job as they were at the last look."""

    paths: list[str]
    followed: dict[Path, FollowedFile] = field(default_factory=dict)
    past: set[int] = field(default_factory=set)
    """Inodes of files that were rotated away: they belong to an earlier chapter."""

    def look(self) -> list[str]:
        """Read what is new; return what changed, a sentence each."""
        told: list[str] = []
        sources = {one.path: one for one in self._sources() if one.path is not None}
        for path in [path for path in self.followed if path not in sources]:
            del self.followed[path]
            told.append(f"{path.name} is gone")
        for path, source in sources.items():
            told += self._look_at(path, source)
        return told

    def _look_at(self, path: Path, source: Source) -> Iterator[str]:
        try:
            stat = path.stat()
            known = self.followed.get(path)
            if known is not None and (
                stat.st_ino != known.inode or stat.st_size < known.read_bytes
            ):
                was = "rotated" if stat.st_ino != known.inode else "truncated"
                print(f"rerail: {path.name} was {was}; a new chapter begins", file=sys.stderr)
                yield f"{path.name} was {was}: a new chapter"
                if was == "rotated":
                    self.past.add(known.inode)
                known = None
            if known is None and stat.st_ino in self.past:
                return
            if known is None:
                from rerail.assistant.pipeline import scan_plan

                plan = scan_plan()
                known = FollowedFile(source, plan.signatures, scanner_for(plan, stat.st_size))
                self.followed[path] = known
            new = known.look()
        except OSError:
            return
        if new:
            yield f"{path.name} +{new:,} bytes"

    def _sources(self) -> list[Source]:
        try:
            found = discover(self.paths).sources
        except EvidenceError:
            return []
        if any(source.path is None for source in found):
            raise EvidenceError(
                "standard input cannot be followed", subject="-", hint="name the log files"
            )
        # A file that was rotated keeps its inode under its new name: the one of the old name comes first.
        return sorted(found, key=lambda source: source.path not in self.followed)


def follow_command(
    paths: list[str], *, json_output: bool, quiet: bool, polls: int | None = None
) -> int:
    """Diagnose, wait for the files to change, diagnose again; Ctrl-C ends with the last verdict.

    Args:
        paths: files, folders or globs; standard input cannot be followed.
        json_output: print one JSON object per changed verdict, with `update`: its time and what changed.
        quiet: print one line per changed verdict.
        polls: stop after so many looks; None goes on until interrupted.
    """
    from rerail.assistant.pipeline import diagnose_collection
    from rerail.assistant.verdict_out import exit_code

    files, last, looks = _Files(paths), None, 0
    changes: list[str] = []
    try:
        while polls is None or looks < polls:
            looks += 1
            new = files.look()
            changes += new
            if new and files.followed:
                surveys = [one.survey() for one in files.followed.values()]
                diagnosis = diagnose_collection(assemble(surveys)).diagnosis
                if last is None or _key(diagnosis) != _key(last):
                    _tell(diagnosis, [*_changed(last, diagnosis), *changes], json_output, quiet)
                    changes = []
                last = diagnosis
            if polls is None or looks < polls:
                time.sleep(POLL_S)
    except KeyboardInterrupt:
        pass
    if last is None:
        raise EvidenceError(
            "nothing could be read", subject=" ".join(paths), hint=f"ls -l {' '.join(paths)}"
        )
    return exit_code(last)


def _tell(diagnosis: Diagnosis, changes: list[str], json_output: bool, quiet: bool) -> None:
    from rerail.assistant.verdict_out import show

    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    if json_output:
        told = diagnosis.model_dump(mode="json") | {"update": {"time": now, "changed": changes}}
        sys.stdout.write(json.dumps(told, indent=2) + "\n")
    else:
        if quiet:
            sys.stdout.write(f"{now} ")
        else:
            print(f"{now}  {'; '.join(changes)}")
        show(diagnosis, json_output=False, quiet=quiet, verbose=False)
    sys.stdout.flush()


def _changed(before: Diagnosis | None, now: Diagnosis) -> list[str]:
    """Say what of the verdict is another than at the last look."""
    if before is None:
        return ["first look"]
    pairs = [
        ("outcome", before.outcome, now.outcome),
        ("status", before.status, now.status),
        ("failure type", before.failure_type or "none", now.failure_type or "none"),
        ("first fault", _place(before) or "none", _place(now) or "none"),
    ]
    return [f"{what} {old} -> {new}" for what, old, new in pairs if old != new]


def _place(diagnosis: Diagnosis) -> str | None:
    first = diagnosis.first_fault
    return f"{first.file}:{first.line}" if first else None


def _key(diagnosis: Diagnosis) -> tuple[object, ...]:
    return (diagnosis.outcome, diagnosis.status, diagnosis.failure_type, _place(diagnosis))
