"""Which job an id of Slurm means, and which of its starts is looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rerail.assistant.locate.locator import NothingYetError
from rerail.errors import UsageError
from rerail.log_parsers.sources import Problem
from rerail.tools.clusters.attempt_span import AttemptSpan
from rerail.tools.clusters.slurm_records import ENDED_BADLY, AttemptRecord

MOST_SHOWN = 8
ENDED = ENDED_BADLY | {"COMPLETED", "CANCELLED", "REVOKED"}


@dataclass(frozen=True, slots=True)
class OneJob:
    """The raw id of one job and the one that people see, with what is to be said of it."""

    number: str
    shown: str
    told: tuple[str, ...] = ()
    missing: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class Chosen:
    """One start of a job, and those before and after it; `waits` tells that it will be started again."""

    job: OneJob
    attempt: AttemptRecord
    previous: AttemptRecord | None = None
    following: AttemptRecord | None = None
    told: tuple[str, ...] = ()
    waits: bool = False

    @property
    def ended(self) -> bool:
        """Whether the job will write nothing more in this attempt or a later one."""
        return self.attempt.state in ENDED and (self.following is not None or not self.waits)

    @property
    def span(self) -> AttemptSpan:
        """From when until when something is of the attempt."""
        return AttemptSpan(self.attempt, self.previous, self.following)


def one_job(rows: Sequence[tuple[str, str, str]], job: str) -> OneJob:
    """Return the one job that an id means; the parts of a heterogeneous job are told of.

    Args:
        rows: the id that people see, the raw one and the state of each job that the id means.
        job: the id that was asked for.

    Raises:
        UsageError: It is an array of several tasks.
    """
    tasks = [row for row in rows if row[0].startswith(f"{job}_")]
    if len(tasks) > 1 or (tasks and "[" in tasks[0][0]):
        failed = [shown for shown, _, state in tasks if state in ENDED_BADLY]
        names = ", ".join(failed[:MOST_SHOWN]) + (", ..." if len(failed) > MOST_SHOWN else "")
        raise UsageError(
            f"job {job} is an array of {len(tasks)} tasks"
            + (f"; {len(failed)} ended badly: {names}" if failed else ", and none ended badly"),
            subject=job,
            hint=f"rerail diagnose {failed[0] if failed else tasks[0][0]}",
        )
    parts = [row for row in rows if row[0].startswith(f"{job}+")]
    own = next((row for row in rows if row[0] == f"{job}+0"), None) or next(iter(rows), None)
    others = [row for row in parts if row != own]
    missing = tuple(
        Problem(
            f"job {shown}",
            f"another part of heterogeneous job {job} ({state}): its files were not read",
            f"rerail diagnose {shown}",
        )
        for shown, _, state in others
    )
    if own is None:
        return OneJob(job, job)
    told = (f"job {job} is task {own[0]}",) if own[0] != job and "_" in own[0] else ()
    return OneJob(own[1], own[0], told, missing)


def choose(job: OneJob, attempts: list[AttemptRecord], wanted: int | None) -> Chosen:
    """Return the attempt that was asked for, or the last one that started.

    Raises:
        NothingYetError: The job has not started yet.
        UsageError: There is no such attempt.
    """
    started = [one for one in attempts if one.state != "PENDING"]
    if not started:
        raise NothingYetError(
            f"job {job.shown} waits and has not started: there is nothing to read yet",
            subject=job.shown,
            hint=f"squeue -j {job.number}",
        )
    numbers = [one.attempt for one in started]
    if wanted is not None and wanted not in numbers:
        raise UsageError(
            f"job {job.shown} has no attempt {wanted}; there are {', '.join(map(str, numbers))}",
            subject="--attempt",
            hint=f"rerail diagnose {job.shown} --attempt {numbers[-1]}",
        )
    place = len(started) - 1 if wanted is None else numbers.index(wanted)
    attempt = started[place]
    previous = started[place - 1] if place else None
    following = started[place + 1] if place + 1 < len(started) else None
    told = list(job.told)
    if len(attempts) > 1:
        others = ", ".join(
            f"attempt {one.attempt} {one.state}" for one in attempts if one is not attempt
        )
        told.append(
            f"job {job.shown} was started more than once; this is attempt {attempt.attempt} "
            f"({attempt.state}); also {others}: --attempt N"
        )
    waits = attempts[-1].state == "PENDING"
    return Chosen(job, attempt, previous, following, tuple(told), waits)
