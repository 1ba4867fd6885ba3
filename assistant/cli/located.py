"""Jobs among the arguments of `rerail diagnose`: told from paths, and their evidence found."""

from __future__ import annotations

import sys
from pathlib import Path

from rerail.assistant.locate.gather import Gathered, gather
from rerail.assistant.locate.job_name import JobName, job_name, the_one


def located(
    arguments: list[str], seconds: float, attempt: int | None
) -> tuple[list[str], Gathered]:
    """Return the arguments that are paths, and what was found of the job among them.

    Raises:
        UsageError: Two jobs are named.
        EvidenceError: There is no such job, nobody to ask, or nothing of it can be read.
        ClusterError: The scheduler does not answer.
    """
    paths, job = split(arguments)
    if job is None:
        return paths, Gathered()
    found = gather(job, seconds, attempt)
    for told in found.told:
        print(f"rerail: {told}", file=sys.stderr)
    return paths, found


def split(arguments: list[str]) -> tuple[list[str], JobName | None]:
    """Return the arguments that are paths, and the job among them, if there is one.

    What exists as a path is a path, whatever else it may be.

    Raises:
        UsageError: Two jobs are named.
    """
    paths: list[str] = []
    jobs: list[JobName] = []
    for one in arguments:
        name = job_name(one)
        if name is None or _exists(one):
            paths.append(one)
            if name is not None and name.scheme == "slurm" and "/" not in one:
                print(
                    f"rerail: {one} is a file or folder here and is read as that; "
                    f"slurm://{one} is the job of that number",
                    file=sys.stderr,
                )
        else:
            jobs.append(name)
    return paths, the_one(jobs, "rerail diagnose {}")


def _exists(text: str) -> bool:
    try:
        return Path(text).expanduser().exists() or Path(text).is_symlink()
    except OSError:
        return False
