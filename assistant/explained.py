"""Puts the model's explanation beside a diagnosis: after the rules verdict, and never in its place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rerail.assistant.agent.endpoint import configured
from rerail.assistant.agent_tools.facts import JobFacts, Known
from rerail.assistant.agent_tools.lines import LineSource, ViewSource
from rerail.assistant.pipeline import Outcome
from rerail.assistant.record import Recorded, make_incident
from rerail.assistant.stored_lines import StoredSource
from rerail.domain.diagnosis import Diagnosis
from rerail.domain.diagnosis import Outcome as Result
from rerail.domain.incident import Incident, NodeEvent
from rerail.errors import RerailError
from rerail.settings import Settings, load_settings

if TYPE_CHECKING:
    from rerail.assistant.agent.budget import Budget
    from rerail.assistant.agent.explain import Explanation, OnClaim


def wanted(diagnosis: Diagnosis, settings: Settings | None = None) -> bool:
    """Tell whether a model is configured and there is something to explain."""
    return configured(settings or load_settings()) and diagnosis.outcome is not Result.NO_FAILURE


def explain_recorded(
    recorded: Recorded,
    *,
    on_event: Callable[[str], None] | None = None,
    on_claim: OnClaim | None = None,
    budget: Budget | None = None,
) -> tuple[Diagnosis, Explanation]:
    """Ask the model about a diagnosis; return the diagnosis with its words, and the explanation.

    `on_event` and `on_claim` are those of `explain`.
    """
    from rerail.assistant.agent.explain import Explanation, explain

    outcome = recorded.outcome
    incident = recorded.incident or make_incident(outcome, [])
    settings = load_settings()
    try:
        explanation = explain(
            facts_for(incident, outcome),
            settings,
            on_event=on_event,
            on_claim=on_claim,
            budget=budget,
        )
    except RerailError as error:
        explanation = Explanation(
            name=settings.model,
            prompt_id="",
            stand="unavailable",
            banner=f"model unavailable: {error.message} ({error.hint})",
        )
    said = explanation.model_dump(mode="json")
    diagnosis = outcome.diagnosis.model_copy(update={"model": said})
    if recorded.incident is not None and explanation.stand != "unavailable":
        _keep(recorded.incident, diagnosis)
    return diagnosis, explanation


def _keep(incident: Incident, diagnosis: Diagnosis) -> None:
    from rerail.knowledge_base.store.inbox import submit

    try:
        submit(incident.model_copy(update={"diagnosis": diagnosis}))
    except RerailError:
        pass  # the incident itself is kept, or its own banner was shown; the words are lost


def facts_for(incident: Incident, outcome: Outcome | None = None) -> JobFacts:
    """Return what the tools may read: the logs where they are at hand, else the snapshot."""
    lines: LineSource
    if outcome is not None:
        lines = ViewSource(outcome.case.views)
    else:
        lines = StoredSource(incident)
    return JobFacts(incident, lines, similar_known, runbook_page, tuple(_node_events(incident)))


def similar_known(incident: Incident) -> Sequence[Known]:
    """Return signed-off incidents like this one; nothing where none is near or there is no store."""
    from rerail.knowledge_base.store.engine import open_store, store_exists

    if not store_exists():
        return ()
    from rerail.knowledge_base.retrieval.documents import INCIDENT
    from rerail.knowledge_base.retrieval.knowledge import open_knowledge, question_of

    engine = open_store()
    try:
        found = open_knowledge(engine).search(question_of(incident), most=3, kind=INCIDENT)
    finally:
        engine.dispose()
    return [
        Known(hit.document.id, hit.document.title, hit.document.text, hit.why)
        for hit in found
        if hit.seen
    ]


def runbook_page(failure_type: str) -> str | None:
    """Return the runbook page of a leaf, if there is one."""
    from rerail.knowledge_base.runbook_pages import runbook_pages

    page = runbook_pages().get(failure_type)
    return None if page is None else page.text


def _node_events(incident: Incident) -> list[NodeEvent]:
    return [
        NodeEvent(
            incident=past.incident,
            node=history.node,
            time=past.time,
            failure_type=past.failure_type,
            status="",
        )
        for history in incident.diagnosis.history
        for past in history.failures
    ]
