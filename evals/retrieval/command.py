"""`rerail eval retrieval`: words, vectors and both side by side, on recurrences and unseen causes."""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from rerail.errors import UsageError
from rerail.evals.retrieval.sets import Asked, RetrievalSet, build_sets
from rerail.knowledge_base.retrieval.embedding import HASHED, embedder_from
from rerail.knowledge_base.retrieval.knowledge import question_of
from rerail.knowledge_base.retrieval.search import Question, Retriever, seen
from rerail.knowledge_base.retrieval.vectors import VectorIndex, available
from rerail.settings import load_settings


@dataclass(slots=True)
class Score:
    """What one way of searching scored on one set."""

    set: str
    how: str
    questions: int = 0
    first: int = 0
    five: int = 0
    reciprocal: float = 0.0
    said_seen: int = 0

    @property
    def mrr(self) -> float:
        """Mean reciprocal rank."""
        return self.reciprocal / self.questions if self.questions else 0.0


def retrieval_command(
    cases: Path | None, recorded: Path | None, *, boosts: bool, json_output: bool
) -> int:
    """Score retrieval; return 0 when it could be scored."""
    sets = build_sets(cases, recorded)
    if not sets:
        raise UsageError(
            "no case was chosen", hint="--recorded tests/data/faultlab, or --cases FILE"
        )
    settings = load_settings()
    named = settings.embedding_url or settings.embedding_model
    asked = settings if named else settings.model_copy(update={"embedding_model": HASHED})
    embedder = embedder_from(asked)
    scores = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for number, one in enumerate(sets):
            place = asked.model_copy(
                update={"data_dir": Path(folder) / str(number), "chroma_url": ""}
            )
            vectors = VectorIndex(place, embedder) if available() else None
            retriever = Retriever(one.documents, vectors)
            ways = ["lexical", "dense", "hybrid"] if vectors is not None else ["lexical"]
            scores += [score(one, retriever, how, boosts=boosts) for how in ways]
    if json_output:
        rows = [{**asdict(s), "mrr": s.mrr, "embedder": embedder.name} for s in scores]
        print(json.dumps(rows, indent=2))
        return 0
    _print(scores, embedder.name, boosts)
    return 0


def score(one: RetrievalSet, retriever: Retriever, how: str, *, boosts: bool) -> Score:
    """Ask every question of a set in one way."""
    result = Score(one.name, how)
    leaf = {d.id: d.leaf for d in one.documents}
    for asked in one.questions:
        hits = retriever.search(_question(asked, boosts), most=50, how=how)
        result.questions += 1
        result.said_seen += seen(hits)
        place = next((i for i, h in enumerate(hits, 1) if leaf[h.document.id] == asked.leaf), None)
        if place is not None and asked.answers:
            result.first += place == 1
            result.five += place <= 5
            result.reciprocal += 1.0 / place
    return result


def _question(asked: Asked, boosts: bool) -> Question:
    question = question_of(asked.incident)
    if asked.recurs:
        # Another job with the same text; a rewrite that changed nothing must not hide its original.
        question = replace(question, but=None)
    # The rules' own verdict is in the fingerprint: without it, words and vectors stand alone.
    return question if boosts else replace(question, fingerprint="", entity=None, cluster="")


def _print(scores: list[Score], embedder: str, boosts: bool) -> None:
    title = f"retrieval, embeddings: {embedder}" + (", with fingerprint boosts" if boosts else "")
    table = Table(title=title, box=None)
    for column in ("set", "search", "questions", "recall@1", "recall@5", "MRR", "said seen"):
        table.add_column(column, justify="left" if column in ("set", "search") else "right")
    for s in scores:
        answerable = s.set != "unseen"
        table.add_row(
            s.set,
            s.how,
            str(s.questions),
            f"{s.first / s.questions:.3f}" if answerable else "-",
            f"{s.five / s.questions:.3f}" if answerable else "-",
            f"{s.mrr:.3f}" if answerable else "-",
            f"{s.said_seen}/{s.questions}",
        )
    Console(width=None if sys.stdout.isatty() else 120).print(table)
