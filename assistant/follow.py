"""`rerail diagnose --follow`: watches the logs of a live job and prints the verdict when it changes.

Files are polled: a file that grows is read again from its start as long as it is small, which is
cheap at scan speed; rotation (a new inode) and truncation (a smaller size) are noticed and said.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from rerail.domain.diagnosis import Diagnosis
from rerail.errors import EvidenceError
from rerail.log_parsers.sources import discover

POLL_S = 2.0


def follow_command(
    paths: list[str], *, json_output: bool, quiet: bool, polls: int | None = None
) -> int:
    """Diagnose, wait for the files to change, diagnose again; Ctrl-C ends with the last verdict.

    Args:
        paths: files, folders or globs; standard input cannot be followed.
        json_output: print one JSON object per changed verdict.
        quiet: print one line per changed verdict.
        polls: stop after so many looks; None goes on until interrupted.
    """
    from rerail.assistant.cli.diagnose import exit_code, show
    from rerail.assistant.pipeline import diagnose_paths

    last: Diagnosis | None = None
    seen: dict[str, tuple[int, int, int]] = {}
    looks = 0
    try:
        while polls is None or looks < polls:
            looks += 1
            state = _state(paths)
            if state != seen:
                _tell_rotations(seen, state)
                seen = state
                try:
                    diagnosis = diagnose_paths(paths).diagnosis
                except EvidenceError:
                    diagnosis = None
                if diagnosis is not None and (last is None or _key(diagnosis) != _key(last)):
                    show(diagnosis, json_output=json_output, quiet=quiet, verbose=False)
                    sys.stdout.flush()
                last = diagnosis or last
            if polls is None or looks < polls:
                time.sleep(POLL_S)
    except KeyboardInterrupt:
        pass
    if last is None:
        raise EvidenceError(
            "nothing could be read", subject=" ".join(paths), hint=f"ls -l {' '.join(paths)}"
        )
    return exit_code(last)


def _key(diagnosis: Diagnosis) -> tuple[object, ...]:
    first = diagnosis.first_fault
    place = (first.file, first.line) if first else None
    return (diagnosis.outcome, diagnosis.status, diagnosis.failure_type, place)


def _state(paths: list[str]) -> dict[str, tuple[int, int, int]]:
    state = {}
    try:
        sources = discover(paths).sources
    except EvidenceError:
        return {}
    for source in sources:
        if source.path is None:
            raise EvidenceError(
                "standard input cannot be followed", subject="-", hint="name the log files"
            )
        try:
            stat = os.stat(source.path)
        except OSError:
            continue
        state[str(source.path)] = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
    return state


def _tell_rotations(
    old: dict[str, tuple[int, int, int]], new: dict[str, tuple[int, int, int]]
) -> None:
    for path, (inode, size, _) in new.items():
        before = old.get(path)
        if before is None:
            continue
        if before[0] != inode:
            print(f"rerail: {Path(path).name} was rotated; reading the new file", file=sys.stderr)
        elif size < before[1]:
            print(f"rerail: {Path(path).name} was truncated; reading it again", file=sys.stderr)
