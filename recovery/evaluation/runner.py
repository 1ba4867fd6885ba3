"""What starts tasks: the interface of the local, Slurm and Ray runners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

Kind = Literal["stage", "probe", "trial", "metric"]


@dataclass(frozen=True)
class Task:
    """One process to run: its kind, its folder and its command; `node` only where it must be there.

    `avoid` are nodes that it shall not run on.
    """

    name: str
    kind: Kind
    folder: Path
    command: tuple[str, ...]
    node: str | None = None
    avoid: tuple[str, ...] = ()

    @property
    def needs_gpu(self) -> bool:
        """Return whether the task loads the model."""
        return self.kind in ("trial", "probe")


class Runner(Protocol):
    """Starts tasks and says which have ended. How they ended stands in their folders."""

    poll_s: float

    def nodes(self, count: int) -> list[str]:
        """Return the names of up to `count` nodes that can be used now."""

    def start(self, task: Task) -> str:
        """Start a task and return a handle."""

    def ended(self, handles: Sequence[str]) -> set[str]:
        """Return which of the handles are running no more, whether they succeeded or not."""

    def cancel(self, handles: Sequence[str]) -> None:
        """End what still runs of these."""

    def node_of(self, handle: str) -> str:
        """Return the node that a task ran on, by the runner's own account; empty where it cannot tell."""
