"""Triggers of Slurm's strigger: they name nodes or a job, the scheduler says which attempts they hit.

A node goes down, and its jobs end a moment later, in accounting later still. So a trigger is
followed for a while; until then its file stays in the spool, where a crash cannot lose it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rerail.domain.job import NodeEvent
from rerail.knowledge_base.store.clock import from_iso
from rerail.tools.clusters.reader import ClusterReader
from rerail.tools.clusters.slurm_records import ENDED_BADLY, AttemptRecord

FOLLOWED_S = 180.0
ASK_EVERY_S = 5.0
BEFORE_S = 600.0
"""How long before a trigger an attempt may have ended on its nodes: a job fails, a health check
drains the node, and Slurm looks for triggers every 15 seconds."""


@dataclass
class Triggers:
    """The triggers that are followed, by their files."""

    known: dict[Path, NodeEvent] = field(default_factory=dict)
    _asked: dict[Path, float] = field(default_factory=dict)

    def hear(self, path: Path, event: NodeEvent) -> None:
        """Follow a trigger from now on."""
        self.known[path] = event

    def keep_only(self, files: Iterable[Path]) -> None:
        """Forget triggers whose files another process has finished with."""
        there = set(files)
        for path in [one for one in self.known if one not in there]:
            self.forget(path)

    def forget(self, path: Path) -> None:
        """Follow a trigger no longer."""
        self.known.pop(path, None)
        self._asked.pop(path, None)

    def due(self, now: float) -> Iterator[tuple[Path, NodeEvent]]:
        """Yield the triggers for which the scheduler is to be asked now."""
        for path, event in list(self.known.items()):
            if now - self._asked.get(path, float("-inf")) >= ASK_EVERY_S:
                self._asked[path] = now
                yield path, event

    @staticmethod
    def is_old(event: NodeEvent, now: float) -> bool:
        """Tell whether nothing more is expected of a trigger."""
        return now - from_iso(event.time).timestamp() > FOLLOWED_S


def attempts_hit(reader: ClusterReader, event: NodeEvent) -> list[AttemptRecord]:
    """Return the attempts that ended badly around a trigger, on its nodes or of its job.

    Raises:
        ClusterError: The scheduler does not answer.
    """
    since = from_iso(event.time).timestamp() - BEFORE_S
    if event.job:
        known = reader.attempts(event.job)
        return [one for one in known if one.state in ENDED_BADLY and (one.end or since) >= since]
    nodes = set(event.nodes)
    return [one for one in reader.ended_badly(since) if nodes & set(one.nodes)]
