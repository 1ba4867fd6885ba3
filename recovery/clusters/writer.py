"""What the executor asks of a cluster adapter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol

from rerail.domain.job import JobRef
from rerail.domain.plan import PlannedAction

Before = Callable[[Sequence[str]], None]
"""Told of each command before it runs; keeps the record, and may refuse the first one."""


def nothing_before(command: Sequence[str]) -> None:
    """Let every command run."""


class Check(StrEnum):
    """What a look at the cluster says of an action's effect."""

    DONE = "done"
    PENDING = "pending"
    ABSENT = "absent"


class ClusterWriter(Protocol):
    """Carries out cluster actions of the catalogue and says whether they took effect."""

    def commands(self, action: PlannedAction, job: JobRef, incident: str) -> list[list[str]]:
        """Return exactly what `carry_out` would run now, for show and for the dry run."""

    def preconditions(self, action: PlannedAction, job: JobRef) -> str:
        """Read the preconditions again; return what does not hold, or an empty string."""

    def rehearse(self, action: PlannedAction, job: JobRef, incident: str) -> str:
        """Have the cluster try the action without effect, as far as it can; return how far that is.

        Raises:
            ClusterError: The cluster refuses the action, or does not answer.
        """

    def carry_out(
        self, action: PlannedAction, job: JobRef, incident: str, before: Before = nothing_before
    ) -> None:
        """Perform the action; raises ClusterError, recoverable where a retry may help.

        `before` is called with each command before it runs; what it raises ends the action there.
        """

    def effect(self, action: PlannedAction, job: JobRef) -> Check:
        """Say whether the action has taken effect, is under way, or never happened."""

    def running_elsewhere(self, action: PlannedAction, job: JobRef) -> Check:
        """Say whether a later attempt of the job runs as the action wanted it."""
