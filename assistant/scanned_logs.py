"""Logs that were read in shards elsewhere (`rerail scan --logs`), brought back for a diagnosis."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rerail.errors import EvidenceError
from rerail.log_parsers.scan import Signature
from rerail.log_parsers.scanned import Scanned
from rerail.log_parsers.sources import Problem

_AGAIN = "rerail scan --logs LOGS --out EMPTY_FOLDER"


def read_scanned(paths: Sequence[Path], signatures: Sequence[Signature]) -> Scanned:
    """Return what the files of shards hold; a damaged one is a missing shard.

    Raises:
        EvidenceError: they are of other rules than these, or of different splits.
    """
    from rerail.log_parsers.scan_work import KIND, LogWork, scanned_of, work_name
    from rerail.tools.shards.work import merge_shards, read_head

    name = work_name(signatures)
    parts: list[bytes] = []
    problems: list[Problem] = []
    gone: set[tuple[int, int]] = set()
    for path in sorted(paths):
        try:
            part = path.read_bytes()
            head = read_head(part)
        except (OSError, EvidenceError) as error:
            problems.append(Problem(str(path), f"left out: {error}", _AGAIN))
            continue
        if not str(head["work"]).startswith(KIND + " "):
            raise EvidenceError(f"{path}: not of logs", subject=str(path), hint=_AGAIN)
        if head["work"] != name:
            raise EvidenceError(
                f"{path} was scanned with other rules than this rerail has", subject=str(path),
                hint=f"scan with this version and these rules: {_AGAIN}",
            )  # fmt: skip
        gone |= {(int(n), int(of)) for n, of in head.get("missing", [])}
        parts.append(part)
    merged = merge_shards(LogWork.of(name), parts)
    found = scanned_of(merged.rows, str(paths[0].parent))
    gone |= set(merged.missing)
    unread = len(problems) if not merged.rows else 0
    found.problems = [*problems, *_told(sorted(gone)), *found.problems]
    if merged.differ:
        found.problems.append(
            Problem("shards", "they saw different lists of files: some may be missing", _AGAIN)
        )
    found.missing = len(gone) + unread + merged.differ
    return found


def _told(gone: list[tuple[int, int]]) -> list[Problem]:
    return [
        Problem(
            f"shard {number} of {count}", "is missing: its files were not read",
            f"rerail scan --logs LOGS --shard {number}/{count} --out FOLDER",
        )
        for number, count in gone
    ]  # fmt: skip
