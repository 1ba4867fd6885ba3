"""Hybrid search: ranks by words and by vectors, fused; newer and nearer incidents first; or unseen.

Reciprocal rank fusion (Cormack, Clarke and Buettcher, SIGIR 2009) needs no common scale between the
two. "Unseen" is an answer: when the best incident holds too little of what the failure is known by,
weighted by how rare each word is, there is nothing to learn from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rerail.errors import RerailError
from rerail.knowledge_base.retrieval.bm25 import Bm25
from rerail.knowledge_base.retrieval.documents import INCIDENT, Document
from rerail.knowledge_base.retrieval.vectors import VectorIndex
from rerail.knowledge_base.store.clock import from_iso

_RRF = 60.0
HALF_LIFE_DAYS = 365.0
SAME_CLUSTER, SAME_FINGERPRINT, SAME_ENTITY = 1.05, 1.6, 1.2
SEEN_WORDS = 0.7
_CORE = 4  # how much the first fault's wording counts beside the other lines
_DEPTH = 50


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked: a text, and where known the circumstances. `time` is ISO 8601 in UTC."""

    text: str
    core: str = ""
    time: str = ""
    cluster: str = ""
    fingerprint: str = ""
    entity: str | None = None
    but: str | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """One document with its place and why it is there."""

    document: Document
    score: float
    words: float
    cosine: float | None
    why: str

    @property
    def seen(self) -> bool:
        """Tell whether this is near enough to say that the failure was seen before."""
        return "fingerprint" in self.why or self.words >= SEEN_WORDS


class Retriever:
    """Documents with both indexes; without vectors, words alone serve."""

    def __init__(self, documents: Sequence[Document], vectors: VectorIndex | None = None) -> None:
        self._documents = list(documents)
        self._by_id = {d.id: i for i, d in enumerate(self._documents)}
        self._words = Bm25(
            [f"{d.core}\n" * (_CORE - 1) + f"{d.title}\n{d.text}" for d in self._documents]
        )
        self._vectors = vectors
        self.banner = ""
        if vectors is not None:
            try:
                vectors.update(self._documents)
            except RerailError as error:
                self._vectors = None
                self.banner = f"searched by words alone: {error.message}"

    def search(
        self, question: Question, *, most: int = 5, kind: str | None = None, how: str = "hybrid"
    ) -> list[Hit]:
        """Return the best documents. `how` is lexical, dense or hybrid."""
        chosen = {
            i
            for i, d in enumerate(self._documents)
            if d.id != question.but and (kind is None or d.kind == kind)
        }
        scores = self._words.scores(question.text)
        for index, score in self._words.scores(question.core).items():
            scores[index] = scores.get(index, 0.0) + (_CORE - 1) * score
        by_words = sorted((i for i in scores if i in chosen), key=lambda i: (-scores[i], i))
        near: dict[int, float] = {}
        if how != "lexical" and self._vectors is not None:
            try:
                for name, cosine in self._vectors.nearest(
                    question.core or question.text, 4 * _DEPTH
                ):
                    if self._by_id.get(name) in chosen:
                        near[self._by_id[name]] = cosine
            except RerailError as error:
                self.banner = f"searched by words alone: {error.message}"
        by_vector = sorted(near, key=lambda i: (-near[i], i))
        fused: dict[int, float] = {}
        if how != "dense" or not by_vector:
            _add_ranks(fused, by_words[:_DEPTH])
        if how != "lexical":
            _add_ranks(fused, by_vector[:_DEPTH])
        hits = [self._hit(i, score, near.get(i), question) for i, score in fused.items()]
        hits.sort(key=lambda hit: (-hit.score, hit.document.id))
        return hits[:most]

    def _hit(self, index: int, score: float, cosine: float | None, question: Question) -> Hit:
        document = self._documents[index]
        why = []
        if question.fingerprint and document.fingerprint == question.fingerprint:
            score *= SAME_FINGERPRINT
            why.append("same fingerprint")
        if question.entity is not None and document.entity == question.entity:
            score *= SAME_ENTITY
            why.append("same node and GPU")
        if question.cluster and document.cluster == question.cluster:
            score *= SAME_CLUSTER
            why.append("same cluster")
        if document.kind == INCIDENT:
            score *= decay(document.time, question.time)
        words = self._words.coverage(question.core or question.text, index)
        why.append(
            f"{words:.2f} of its words" + ("" if cosine is None else f", cosine {cosine:.2f}")
        )
        return Hit(document, score, words, cosine, ", ".join(why))


def decay(then: str, now: str) -> float:
    """Return how much an incident of an earlier time still weighs: half after a year, never below a quarter."""
    if not then or not now:
        return 1.0
    days = max(0.0, (from_iso(now) - from_iso(then)).total_seconds() / 86_400.0)
    return max(0.25, float(0.5 ** (days / HALF_LIFE_DAYS)))


def seen(hits: Sequence[Hit]) -> bool:
    """Tell whether the best incident among the hits is near enough; False means unseen."""
    return any(hit.seen for hit in hits if hit.document.kind == INCIDENT)


def _add_ranks(fused: dict[int, float], ranked: Sequence[int]) -> None:
    for place, index in enumerate(ranked):
        fused[index] = fused.get(index, 0.0) + 1.0 / (_RRF + place + 1)
