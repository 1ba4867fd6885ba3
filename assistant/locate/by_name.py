"""A job by its name for the other faces: the same search as `rerail diagnose 4711`, within a server's folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rerail.assistant.locate.gather import Gathered, gather
from rerail.assistant.locate.job_name import JobName, job_name, the_one
from rerail.assistant.pipeline import Outcome, diagnose_paths
from rerail.assistant.readable import discovered, within
from rerail.assistant.record import Recorded, record_outcome
from rerail.domain.diagnosis import Diagnosis
from rerail.errors import UsageError

LOCATE_S = 20.0


def paths_and_job(
    arguments: Sequence[str], folders: tuple[Path, ...]
) -> tuple[list[str], JobName | None]:
    """Return the arguments that lie in a server's folders, and the job among the others.

    Raises:
        UsageError: One is neither in a folder nor the name of a job, or two jobs are named.
    """
    paths: list[str] = []
    jobs: list[JobName] = []
    for one in arguments:
        try:
            paths.append(str(within(one, folders)))
        except UsageError:
            name = job_name(one)
            if name is None:
                raise
            jobs.append(name)
    return paths, the_one(jobs, "name {} alone")


def diagnose_for_others(arguments: list[str], folders: tuple[Path, ...]) -> Diagnosis:
    """Return the verdict on files in a server's folders, or on a job that was named; keeps nothing.

    Raises:
        UsageError: An argument is neither.
        EvidenceError: Nothing can be read.
        ClusterError: The scheduler does not answer.
    """
    allowed, job = paths_and_job(arguments, folders)
    with Gathered() if job is None else gather(job, LOCATE_S, folders=folders) as found:
        if allowed:
            files = discovered(allowed, folders)
            found.evidence.sources += files.sources
            found.evidence.problems += files.problems
            found.evidence.profiles += files.profiles
            found.evidence.scanned += files.scanned
        return diagnose_paths([], located=found.evidence).diagnosis


def diagnose_and_record(job: JobName) -> tuple[Outcome, Recorded]:
    """Diagnose a job by its name, and keep the incident under its id.

    Raises:
        EvidenceError: Nothing can be read.
        ClusterError: The scheduler does not answer.
    """
    with gather(job, LOCATE_S) as found:
        outcome = diagnose_paths([], located=found.evidence)
        number = found.job or None
        return outcome, record_outcome(
            outcome, sorted(found.paths), job=number, attempt=found.attempt
        )
