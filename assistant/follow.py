"""`rerail diagnose --follow`: watches the logs of a live job and tells when its verdict changes.

Files are polled and only what is new in them is read (`followed.py`). A job that was named is asked for again
from time to time (`locate/live.py`), until it has ended.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rerail.assistant.followed import Followed, name_of, path_of
from rerail.domain.diagnosis import Diagnosis
from rerail.errors import EvidenceError
from rerail.log_parsers.collect import assemble
from rerail.log_parsers.sources import STDIN_HINT, Source, discover

if TYPE_CHECKING:
    from rerail.assistant.locate.live import LiveJob
    from rerail.domain.series import StepSeries

POLL_S = 2.0


def follow_command(
    paths: list[str],
    *,
    json_output: bool,
    quiet: bool,
    polls: int | None = None,
    job: LiveJob | None = None,
    good_runs: Sequence[Sequence[StepSeries]] = (),
) -> int:
    """Diagnose, wait for the files to change, diagnose again; Ctrl-C ends with the last verdict.

    Args:
        paths: files, folders or globs; standard input cannot be followed.
        json_output: print one JSON object per changed verdict, with `update`: its time and what changed.
        quiet: print one line per changed verdict.
        polls: stop after so many looks; None goes on until interrupted, or until the job has ended.
        good_runs: good runs of the same job, each as its series.
        job: a job whose evidence is found by its name; its end is told and ends the watch.

    Raises:
        EvidenceError: Nothing could be read, or the job is not known.
    """
    from rerail.assistant.pipeline import diagnose_collection
    from rerail.assistant.verdict_out import exit_code

    files, located, last, looks = Followed(path_of), Followed(name_of), None, 0
    changes: list[str] = []
    ended = False
    try:
        while (files.over or located.over) or (not ended and (polls is None or looks < polls)):
            looks += 1
            new = files.look(_sources(paths)) if paths else []
            problems = []
            if job is not None:
                new += job.look(located)
                ended, problems = job.ended, job.problems
            changes += new
            if new and (files or located):
                surveys = [*files.surveys(), *located.surveys()]
                diagnosis = diagnose_collection(
                    assemble(surveys, problems), good_runs=good_runs
                ).diagnosis
                if last is None or ended or _key(diagnosis) != _key(last):
                    _tell(
                        diagnosis, [*_changed(last, diagnosis), *changes], json_output, quiet, job
                    )
                    changes = []
                last = diagnosis
            over = files.over or located.over
            if not over and not ended and (polls is None or looks < polls):
                time.sleep(POLL_S)
    except KeyboardInterrupt:
        if last is None:
            raise
    if last is None:
        raise EvidenceError(
            "nothing could be read", subject=" ".join(paths), hint=f"ls -l {' '.join(paths)}"
        )
    return exit_code(last)


def _sources(paths: list[str]) -> list[Source]:
    try:
        found = discover(paths).sources
    except EvidenceError:
        return []
    if any(source.path is None for source in found):
        raise EvidenceError(
            "standard input cannot be followed", subject="-", hint="name the log files"
        )
    pipe = next((one for one in found if one.path is not None and one.path.is_fifo()), None)
    if pipe is not None:
        raise EvidenceError(
            f"{pipe.name} is a pipe, and pipes cannot be followed",
            subject=pipe.name,
            hint=f"rerail diagnose {pipe.name} reads it to its end; {STDIN_HINT}",
        )
    return found


def _tell(
    diagnosis: Diagnosis,
    changes: list[str],
    json_output: bool,
    quiet: bool,
    job: LiveJob | None,
) -> None:
    from rerail.assistant.verdict_out import show

    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    if json_output:
        update: dict[str, object] = {"time": now, "changed": changes}
        if job is not None:
            update |= {"job": job.name.text, "attempt": job.number, "state": job.state}
        told = diagnosis.model_dump(mode="json") | {"update": update}
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
