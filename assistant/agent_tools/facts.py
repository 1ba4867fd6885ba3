"""One incident as the tools see it: the record, the lines, and what is known of others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rerail.assistant.agent_tools.lines import LineSource, SnapshotSource
from rerail.domain.incident import Incident, NodeEvent


@dataclass(frozen=True, slots=True)
class Known:
    """A past incident or a runbook page that retrieval found; its text is quoted, never obeyed."""

    id: str
    title: str
    text: str
    why: str = ""


def _nothing(_: Incident) -> Sequence[Known]:
    return ()


def _no_page(_: str) -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What the tools read from. `similar` and `runbook` are ports; without a store they are empty."""

    incident: Incident
    lines: LineSource
    similar: Callable[[Incident], Sequence[Known]] = _nothing
    runbook: Callable[[str], str | None] = _no_page
    node_events: tuple[NodeEvent, ...] = field(default=())


def facts_of(incident: Incident) -> JobFacts:
    """Return the facts of a stored incident, from its snapshot alone."""
    return JobFacts(incident, SnapshotSource(incident.snapshot.lines))
