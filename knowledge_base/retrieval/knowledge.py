"""The knowledge of one installation: its signed-off incidents and runbooks, ready to be searched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from sqlalchemy import Engine

from rerail.domain.incident import Incident
from rerail.errors import RerailError, StoreError
from rerail.knowledge_base.fingerprint import fingerprint
from rerail.knowledge_base.retrieval.bm25 import Statistics, words
from rerail.knowledge_base.retrieval.documents import RUNBOOK, core_of, query_of, searched_text
from rerail.knowledge_base.retrieval.embedding import chosen_model, embedder_from
from rerail.knowledge_base.retrieval.index import candidates, catch_up
from rerail.knowledge_base.retrieval.search import Hit, Question, Retriever
from rerail.knowledge_base.retrieval.vectors import VectorIndex, available
from rerail.knowledge_base.runbook_pages import runbook_documents
from rerail.knowledge_base.store.engine import reading
from rerail.settings import Settings, load_settings


class Knowledge:
    """What may be retrieved: signed-off incidents, from the kept index, and runbook pages.

    Vectors, where an embedding was configured, rank the candidates anew; what stops them is `banner`.
    """

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self._engine = engine
        self._vectors: VectorIndex | None = None
        self.banner = ""
        if chosen_model(settings):
            self._vectors, self.banner = _vectors(settings)

    def search(
        self, question: Question, *, most: int = 5, kind: str | None = None, how: str = "hybrid"
    ) -> list[Hit]:
        """Return the best documents; see `Retriever.search`.

        Raises:
            StoreError: when the store cannot be read.
        """
        asked = list(dict.fromkeys(words(f"{question.core}\n{question.text}")))
        with reading(self._engine) as connection:
            found = candidates(
                connection, asked, fingerprint=question.fingerprint, but=question.but
            )
        documents, cut, statistics = list(found.documents), list(found.words), found.statistics
        if kind is None or kind == RUNBOOK:
            pages = runbook_documents()
            documents += pages
            cut += [words(searched_text(page)) for page in pages]
            statistics = _with_pages(statistics, cut[len(found.words) :])
        retriever = Retriever(documents, self._vectors, cut=cut, statistics=statistics)
        hits = retriever.search(question, most=most, kind=kind, how=how)
        self.banner = self.banner or retriever.banner
        return hits


def open_knowledge(engine: Engine, settings: Settings | None = None) -> Knowledge:
    """Return what may be retrieved; unsigned drafts never are.

    Raises:
        StoreError: when the store cannot be read.
    """
    try:
        catch_up(engine)
    except StoreError:
        pass  # a store that can only be read serves what is indexed already
    return Knowledge(engine, settings or load_settings())


def _with_pages(known: Statistics, pages: list[list[str]]) -> Statistics:
    """Return statistics that count runbook pages as well: a few, beside the record."""
    seen = Counter(known.seen)
    for page in pages:
        seen.update(set(page))
    size = known.size + len(pages)
    total = known.mean * known.size + sum(map(len, pages))
    return Statistics(size, total / size if size else 1.0, seen)


def _vectors(settings: Settings) -> tuple[VectorIndex | None, str]:
    if not available():
        asked = settings.embedding_url or settings.embedding_model
        why = "searched by words alone: pip install 'rerail[retrieval]' for vectors"
        return None, why if asked else ""
    try:
        return VectorIndex(settings, embedder_from(settings)), ""
    except RerailError as error:
        return None, f"searched by words alone: {error.message} ({error.hint})"


def question_of(incident: Incident, parts: Sequence[str] | None = None) -> Question:
    """Return an incident as a question."""
    prints = fingerprint(incident.diagnosis)
    return Question(
        text=query_of(incident, parts),
        core=core_of(incident),
        time=incident.occurred_at or incident.recorded_at,
        cluster=incident.cluster,
        fingerprint=prints.root if incident.diagnosis.failure_type else "",
        entity=prints.entity,
        but=incident.id,
    )
