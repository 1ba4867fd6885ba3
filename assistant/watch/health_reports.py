"""Reads reports of `rerail healthcheck --json` as witnesses: only those that no job can have written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rerail.assistant.watch.trusted_file import read_trusted

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
    raw, _ = read_trusted(
        path, job_uid, owners, setting="jobs.health_owners", most_bytes=MOST_BYTES
    )
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
