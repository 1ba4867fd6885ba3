"""Hybrid search: words and vectors, fused; newer and nearer incidents first; or unseen.

Each side is scaled to its own best hit, then both are added. Reciprocal rank fusion (Cormack, Clarke
and Buettcher, SIGIR 2009) stays as the baseline `ranks`: it throws away how much better the first hit
is than the second, so that age and boosts decide alone (docs/decisions/0009). "Unseen" is an answer:
when the best incident holds too little of what the failure is known by, weighted by how rare each
word is, there is nothing to learn from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rerail.errors import RerailError
from rerail.knowledge_base.retrieval.bm25 import Bm25, Statistics, words
from rerail.knowledge_base.retrieval.documents import CORE_WEIGHT, INCIDENT, Document, searched_text
from rerail.knowledge_base.retrieval.vectors import VectorIndex
from rerail.knowledge_base.store.clock import from_iso

_RRF = 60.0
# Weight of the vectors beside the words: 0.5 to 1 are level on the rules' examples (`rerail eval
# retrieval`); the lowest of them, because poor vectors must not outweigh the words.
_VECTORS = 0.5
HALF_LIFE_DAYS, OLDEST = 365.0, 0.8
SAME_CLUSTER, SAME_FINGERPRINT, SAME_ENTITY = 1.05, 1.6, 1.2
SEEN_WORDS = 0.7
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

    def __init__(
        self,
        documents: Sequence[Document],
        vectors: VectorIndex | None = None,
        *,
        cut: Sequence[Sequence[str]] | None = None,
        statistics: Statistics | None = None,
    ) -> None:
        """Index documents; `cut` are their words where they are known, `statistics` of all on record."""
        self._documents = list(documents)
        self._by_id = {d.id: i for i, d in enumerate(self._documents)}
        known = cut if cut is not None else [words(searched_text(d)) for d in self._documents]
        self._words = Bm25(known, statistics)
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
        """Return the best documents. `how` is lexical, dense, hybrid, or ranks (the baseline)."""
        chosen = {
            i
            for i, d in enumerate(self._documents)
            if d.id != question.but and (kind is None or d.kind == kind)
        }
        scores = self._words.scores(question.text)
        for index, score in self._words.scores(question.core).items():
            scores[index] = scores.get(index, 0.0) + (CORE_WEIGHT - 1) * score
        scores = {i: score for i, score in scores.items() if i in chosen}
        near = self._near(question, chosen) if how != "lexical" else {}
        if how == "ranks":
            fused = _by_ranks(scores, near)
        else:
            by_words = _scaled(_best(scores), 0.0) if how != "dense" or not near else {}
            by_vectors = _scaled(near, min(near.values(), default=0.0))
            fused = {
                i: by_words.get(i, 0.0) + _VECTORS * by_vectors.get(i, 0.0)
                for i in by_words | by_vectors
            }
        held = self._words.coverage(question.core or question.text)
        hits = [
            self._hit(i, score, held.get(i, 0.0), near.get(i), question)
            for i, score in fused.items()
        ]
        hits.sort(key=lambda hit: (-hit.score, hit.document.id))
        return hits[:most]

    def _near(self, question: Question, chosen: set[int]) -> dict[int, float]:
        """Return the cosine of the nearest documents, nearest first; a failure is the banner."""
        if self._vectors is None:
            return {}
        documents = [self._documents[i] for i in sorted(chosen)]
        try:
            found = self._vectors.cosines(question.core or question.text, documents)
        except RerailError as error:
            self.banner = f"searched by words alone: {error.message}"
            return {}
        return _best({self._by_id[name]: cosine for name, cosine in found.items()})

    def _hit(
        self, index: int, score: float, words: float, cosine: float | None, question: Question
    ) -> Hit:
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
        why.append(
            f"{words:.2f} of its words" + ("" if cosine is None else f", cosine {cosine:.2f}")
        )
        return Hit(document, score, words, cosine, ", ".join(why))


def decay(then: str, now: str) -> float:
    """Return how much an incident of an earlier time still weighs, from 1 down to `OLDEST`.

    Among incidents that are about equally alike the newer one comes first; age alone never hides
    the one that is clearly more alike.
    """
    if not then or not now:
        return 1.0
    days = max(0.0, (from_iso(now) - from_iso(then)).total_seconds() / 86_400.0)
    return OLDEST + (1.0 - OLDEST) * float(0.5 ** (days / HALF_LIFE_DAYS))


def seen(hits: Sequence[Hit]) -> bool:
    """Tell whether the best incident among the hits is near enough; False means unseen."""
    return any(hit.seen for hit in hits if hit.document.kind == INCIDENT)


def _best(scores: dict[int, float]) -> dict[int, float]:
    """Return the best scores, best first; equal ones in the order of the documents."""
    return dict(sorted(scores.items(), key=lambda one: (-one[1], one[0]))[:_DEPTH])


def _scaled(scores: dict[int, float], floor: float) -> dict[int, float]:
    """Return scores as shares of the best one above the floor, from 0 to 1."""
    width = max(scores.values(), default=0.0) - floor
    return {i: (score - floor) / width if width > 0 else 1.0 for i, score in scores.items()}


def _by_ranks(words: dict[int, float], vectors: dict[int, float]) -> dict[int, float]:
    fused: dict[int, float] = {}
    for ranked in (_best(words), vectors):
        for place, index in enumerate(ranked, 1):
            fused[index] = fused.get(index, 0.0) + 1.0 / (_RRF + place)
    return fused
