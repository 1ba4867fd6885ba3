"""Reads reports of `rerail healthcheck --json` as witnesses: only those that no job can have written."""

from __future__ import annotations

import json
import os
import pwd
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rerail.errors import EvidenceError

MOST_BYTES = 16 << 20
# What a report must say of a node to count against it. Slowness is left out: on a shared network a
# slow peer makes its partners look slow too.
AGAINST = {
    "faulty": "it failed the pairwise tests",
    "wrong_bits": "it computes other bits than its equals",
    "unstable_bits": "its results change from run to run",
}


@dataclass(frozen=True, slots=True)
class HealthFacts:
    """Which nodes a report tested, and what it holds against some of them."""

    tested: frozenset[str]
    failed: dict[str, str]


def read_health_report(
    path: Path, job_uid: int | None, owners: Sequence[str] = ()
) -> HealthFacts | None:
    """Return what a report says, or None where it is none (an output that is still being written).

    Args:
        path: the report.
        job_uid: the user of the failed job; what belongs to this user is no witness.
        owners: accounts whose reports count, besides root and this process's own.

    Raises:
        EvidenceError: The job's user may have written it, or it cannot be read.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError as error:
        raise EvidenceError(f"{path}: {error.strerror}", subject=str(path)) from None
    with os.fdopen(handle, "rb") as stream:
        facts = os.fstat(stream.fileno())
        if not stat.S_ISREG(facts.st_mode) or not _trusted(facts, path, job_uid, owners):
            raise EvidenceError(
                f"{path} is no witness: others than root, rerail and health_owners may write it",
                subject=str(path),
                hint="chmod go-w the report and its folder; jobs.health_owners in the policy file",
            )
        raw = stream.read(MOST_BYTES)
    try:
        content = json.loads(raw)
        tested = frozenset(_node(name) for name in content["nodes"])
        failed = {
            _node(name): what for key, what in AGAINST.items() for name in content.get(key) or ()
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return HealthFacts(tested, failed)


def _node(name: object) -> str:
    """Return the node of an agent's name: `n3`, or `n3:1` for its second local rank."""
    return str(name).partition(":")[0]


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
