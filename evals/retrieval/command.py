"""`rerail eval retrieval`: words, vectors and both side by side, on recurrences and unseen causes."""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.table import Table

from rerail.errors import UsageError
from rerail.evals.retrieval.sets import Asked, RetrievalSet, build_sets
from rerail.knowledge_base.retrieval.embedding import (
    HASHED,
    WORDLLAMA,
    Embedder,
    chosen_model,
    embedder_from,
)
from rerail.knowledge_base.retrieval.search import Question, Retriever, seen
from rerail.knowledge_base.retrieval.vectors import VectorIndex, available
from rerail.settings import load_settings


@dataclass(slots=True)
class Score:
    """What one way of searching scored on one set."""

    set: str
    how: str
    embedder: str = ""
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
    cases: Path | None,
    recorded: Path | None,
    *,
    boosts: bool,
    json_output: bool,
    held_out: Path | None = None,
) -> int:
    """Score retrieval; return 0 when it could be scored."""
    sets = build_sets(cases, recorded, held_out=held_out)
    if not sets:
        raise UsageError(
            "no case was chosen", hint="--recorded tests/data/faultlab, or --cases FILE"
        )
    scores = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for number, one in enumerate(sets):
            scores.append(score(one, Retriever(one.documents), "lexical", boosts=boosts))
            for way, embedder in enumerate(_embedders()):
                place = load_settings().model_copy(
                    update={"data_dir": Path(folder) / f"{number}-{way}", "chroma_url": ""}
                )
                retriever = Retriever(one.documents, VectorIndex(place, embedder))
                for how in ("dense", "ranks", "hybrid"):
                    found = score(one, retriever, how, boosts=boosts)
                    scores.append(replace(found, embedder=embedder.name))
    if json_output:
        print(json.dumps([{**asdict(s), "mrr": s.mrr} for s in scores], indent=2))
        return 0
    _print(scores, boosts)
    return 0


def _embedders() -> list[Embedder]:
    """Return what can be compared here: hashed letters, the local package, the one of the settings."""
    if not available():
        return []
    settings = load_settings()
    plain = settings.model_copy(update={"embedding_url": "", "embedding_model": HASHED})
    names = {HASHED: plain}
    if find_spec(WORDLLAMA) is not None:
        names[WORDLLAMA] = plain.model_copy(update={"embedding_model": WORDLLAMA})
    if chosen_model(settings):
        names[chosen_model(settings)] = settings
    return [embedder_from(one) for one in names.values()]


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
    question = asked.question
    if asked.recurs:
        # Another job with the same text; a rewrite that changed nothing must not hide its original.
        question = replace(question, but=None)
    # The rules' own verdict is in the fingerprint, and the dates of public reports mean nothing:
    # without them, words and vectors stand alone.
    return (
        question if boosts else replace(question, fingerprint="", entity=None, cluster="", time="")
    )


def _print(scores: list[Score], boosts: bool) -> None:
    title = "retrieval" + (", with fingerprint boosts and age" if boosts else "")
    table = Table(title=title, box=None)
    columns = ("set", "search", "vectors", "questions", "recall@1", "recall@5", "MRR", "said seen")
    for column in columns:
        table.add_column(column, justify="left" if column in columns[:3] else "right")
    for s in scores:
        answerable = s.set != "unseen"
        table.add_row(
            s.set,
            "by rank" if s.how == "ranks" else s.how,
            s.embedder or "-",
            str(s.questions),
            f"{s.first / s.questions:.3f}" if answerable else "-",
            f"{s.five / s.questions:.3f}" if answerable else "-",
            f"{s.mrr:.3f}" if answerable else "-",
            f"{s.said_seen}/{s.questions}",
        )
    Console(width=None if sys.stdout.isatty() else 120).print(table)
