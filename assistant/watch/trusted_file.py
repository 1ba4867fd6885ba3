"""Reads files that count as witnesses: only those that no job can have written."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Sequence
from pathlib import Path

from rerail.errors import EvidenceError


def read_trusted(
    path: Path,
    job_uid: int | None,
    owners: Sequence[str],
    *,
    setting: str,
    most_bytes: int,
    job_folder: str | None = None,
) -> tuple[bytes, float]:
    """Return the content of a file and when it was last written (seconds since the epoch).

    Args:
        path: the file; a link is refused.
        job_uid: the user of the failed job; what belongs to this user is no witness.
        owners: accounts whose files count, besides root and this process's own.
        setting: the key of the policy file that names further owners, for the message.
        most_bytes: what is beyond is cut off.
        job_folder: the job's working folder; nothing below it is a witness, whoever owns it.

    Raises:
        EvidenceError: The job's user may have written it, or it cannot be read.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError as error:
        raise EvidenceError(f"{path}: {error.strerror}", subject=str(path)) from None
    with os.fdopen(handle, "rb") as stream:
        # Judged by the open file, so that nobody can swap it in between.
        facts = os.fstat(stream.fileno())
        if job_folder and Path(os.path.realpath(path)).is_relative_to(os.path.realpath(job_folder)):
            raise EvidenceError(
                f"{path} is no witness: it lies in the job's own folder",
                subject=str(path),
                hint=f"{setting} in the policy file",
            )
        if not stat.S_ISREG(facts.st_mode) or not _trusted(facts, path, job_uid, owners):
            name = setting.rsplit(".", 1)[-1]
            raise EvidenceError(
                f"{path} is no witness: others than root, rerail and {name} may write it",
                subject=str(path),
                hint=f"chmod go-w the file and its folder; {setting} in the policy file",
            )
        return stream.read(most_bytes), facts.st_mtime


def _trusted(facts: os.stat_result, path: Path, job_uid: int | None, owners: Sequence[str]) -> bool:
    trusted = {0, os.geteuid()}
    for name in owners:
        try:
            trusted.add(pwd.getpwnam(name).pw_uid)
        except KeyError:
            continue
    folder = path.parent.stat()
    writable = (facts.st_mode | folder.st_mode) & (stat.S_IWGRP | stat.S_IWOTH)
    # A job of root can write whatever it likes, kernel logs too; there is no telling it apart.
    own = job_uid is not None and job_uid != 0 and facts.st_uid == job_uid
    return facts.st_uid in trusted and folder.st_uid in trusted and not writable and not own


def job_may_write(path: Path, job_uid: int | None) -> bool:
    """Tell whether the job's user can have written a log that some system account keeps.

    Looser than `read_trusted`: syslog and its group may write kernel logs.
    """
    facts, folder = path.stat(), path.parent.stat()
    if facts.st_mode & stat.S_IWOTH:
        return True
    if folder.st_mode & stat.S_IWOTH and not folder.st_mode & stat.S_ISVTX:
        return True
    return bool(job_uid) and job_uid in (facts.st_uid, folder.st_uid)
