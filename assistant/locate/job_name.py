"""What an argument means that is no path: `4711`, `4711_3`, `4711+1`, `slurm://4711`, `k8s://namespace/job`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rerail.errors import UsageError

_NUMBER = re.compile(r"[0-9]{1,12}(?:[_+][0-9]{1,7})?")
_ADDRESS = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]{0,30})://(?P<job>.+)")


@dataclass(frozen=True, slots=True)
class JobName:
    """A job as a person writes it: who knows it, its id there, and the text as given."""

    scheme: str
    job: str
    text: str


def job_name(text: str) -> JobName | None:
    """Return the job that a text names, or None where it can only be a path."""
    if _NUMBER.fullmatch(text):
        return JobName("slurm", text, text)
    found = _ADDRESS.fullmatch(text)
    return None if found is None else JobName(found["scheme"], found["job"].rstrip("/"), text)


def the_one(jobs: Sequence[JobName], hint: str) -> JobName | None:
    """Return the job that was named, if any; `hint` is what to try instead of several, with a place for the first.

    Raises:
        UsageError: Several jobs are named.
    """
    if len(jobs) > 1:
        raise UsageError(
            f"one job at a time: {jobs[0].text} and {jobs[1].text} were named",
            subject=jobs[1].text,
            hint=hint.format(jobs[0].text),
        )
    return jobs[0] if jobs else None
