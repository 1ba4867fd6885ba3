"""The knowledge of one installation: its signed-off incidents and runbooks, ready to be searched."""

from __future__ import annotations

from sqlalchemy import Engine

from rerail.domain.incident import Incident
from rerail.errors import RerailError
from rerail.knowledge_base.fingerprint import fingerprint
from rerail.knowledge_base.retrieval.documents import core_of, document_of, query_of
from rerail.knowledge_base.retrieval.embedding import chosen_model, embedder_from
from rerail.knowledge_base.retrieval.search import Question, Retriever
from rerail.knowledge_base.retrieval.vectors import VectorIndex, available
from rerail.knowledge_base.runbook_pages import runbook_documents
from rerail.knowledge_base.store.engine import reading
from rerail.knowledge_base.store.incidents import list_incidents, load
from rerail.settings import Settings, load_settings

MOST_INCIDENTS = 5_000


def open_knowledge(engine: Engine, settings: Settings | None = None) -> Retriever:
    """Return a retriever over everything that may be retrieved; unsigned drafts never are.

    Vectors are used where an embedding was configured or the local one is installed; what stops
    them is the retriever's banner.

    Raises:
        StoreError: when the store cannot be read.
    """
    chosen = settings or load_settings()
    with reading(engine) as connection:
        rows = list_incidents(connection, signed_off=True, limit=MOST_INCIDENTS)
        documents = [document_of(load(connection, row.id)) for row in rows]
    documents += runbook_documents()
    vectors, banner = None, ""
    if chosen_model(chosen):
        vectors, banner = _vectors(chosen)
    retriever = Retriever(documents, vectors)
    retriever.banner = retriever.banner or banner
    return retriever


def _vectors(settings: Settings) -> tuple[VectorIndex | None, str]:
    if not available():
        asked = settings.embedding_url or settings.embedding_model
        why = "searched by words alone: pip install 'rerail[retrieval]' for vectors"
        return None, why if asked else ""
    try:
        return VectorIndex(settings, embedder_from(settings)), ""
    except RerailError as error:
        return None, f"searched by words alone: {error.message} ({error.hint})"


def question_of(incident: Incident) -> Question:
    """Return an incident as a question."""
    prints = fingerprint(incident.diagnosis)
    return Question(
        text=query_of(incident),
        core=core_of(incident),
        time=incident.occurred_at or incident.recorded_at,
        cluster=incident.cluster,
        fingerprint=prints.root if incident.diagnosis.failure_type else "",
        entity=prints.entity,
        but=incident.id,
    )
