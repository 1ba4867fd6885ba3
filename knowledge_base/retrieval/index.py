"""The kept index of what is searched: full text in the store itself, SQLite's FTS5 or PostgreSQL's.

A search asks it for a few hundred candidates and ranks those (`search.Retriever`), whatever the number of
incidents on record. Candidates are found by the rarest words of the question, because a word that
every failure holds costs most and tells least; and by the fingerprint, the newest first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from sqlalchemy import Connection, Engine, bindparam, delete, func, insert, select, text

from rerail.knowledge_base.retrieval.bm25 import Statistics, words
from rerail.knowledge_base.retrieval.documents import Document, document_of, searched_text
from rerail.knowledge_base.store.engine import reading, writing
from rerail.knowledge_base.store.incidents import load
from rerail.knowledge_base.store.tables import (
    DOCUMENT_QUEUE,
    DOCUMENT_TERMS,
    DOCUMENTS,
    INCIDENTS,
)

_ALL = ""  # the row of document_terms that counts all documents and all their words
_FOUND = 200  # candidates
_RARE = 1_500  # documents that the rare words of a question may hold together
_ENOUGH = 50
_AT_ONCE = 200  # incidents that are taken from the queue in one transaction
_MOST_TERMS = 64

_ADD_TERMS = text(
    "INSERT INTO document_terms (term, documents, words) VALUES (:term, :documents, :words) "
    "ON CONFLICT (term) DO UPDATE SET documents = document_terms.documents + excluded.documents, "
    "words = document_terms.words + excluded.words"
)


@dataclass(frozen=True, slots=True)
class Candidates:
    """Documents worth ranking, their words, and how common each word is on the whole record."""

    documents: tuple[Document, ...]
    words: tuple[list[str], ...]
    statistics: Statistics


def catch_up(engine: Engine) -> int:
    """Index what was signed off, corrected or diagnosed anew since the last search; return how much.

    Raises:
        StoreError: when the store cannot be written; what waits goes on waiting.
    """
    done = 0
    while True:
        with reading(engine) as connection:
            names = list(
                connection.execute(select(DOCUMENT_QUEUE.c.incident).limit(_AT_ONCE)).scalars()
            )
        if not names:
            return done
        with writing(engine) as connection:
            drop_documents(connection, names)
            signed = connection.execute(
                select(INCIDENTS.c.id).where(
                    INCIDENTS.c.id.in_(names), INCIDENTS.c.signed_off_at.is_not(None)
                )
            ).scalars()
            add_documents(connection, [document_of(load(connection, name)) for name in signed])
            connection.execute(delete(DOCUMENT_QUEUE).where(DOCUMENT_QUEUE.c.incident.in_(names)))
        done += len(names)


def add_documents(
    connection: Connection, documents: Sequence[Document], cut: Sequence[list[str]] | None = None
) -> None:
    """Index documents that are not indexed; `cut` are their words where they are known."""
    if not documents:
        return
    cut = cut if cut is not None else [words(searched_text(one)) for one in documents]
    connection.execute(
        insert(DOCUMENTS),
        [
            {
                "incident": one.id,
                "time": one.time,
                "fingerprint": one.fingerprint,
                "body": asdict(one),
                "words": " ".join(found),
            }
            for one, found in zip(documents, cut, strict=True)
        ],
    )
    _count(connection, cut, 1)


def drop_documents(connection: Connection, names: Iterable[str]) -> None:
    """Take documents out of the index; those that are not there are passed over."""
    wanted = DOCUMENTS.c.incident.in_(list(names))
    cut = [
        row.split() for row in connection.execute(select(DOCUMENTS.c.words).where(wanted)).scalars()
    ]
    if cut:
        connection.execute(delete(DOCUMENTS).where(wanted))
        _count(connection, cut, -1)


def _count(connection: Connection, cut: Sequence[list[str]], sign: int) -> None:
    holds = Counter(word for one in cut for word in set(one))
    rows = [{"term": word, "documents": sign * n, "words": 0} for word, n in sorted(holds.items())]
    total = sum(map(len, cut))
    # In one order, so that two writers never wait for each other.
    connection.execute(
        _ADD_TERMS, [{"term": _ALL, "documents": sign * len(cut), "words": sign * total}, *rows]
    )


def candidates(
    connection: Connection, asked: Sequence[str], *, fingerprint: str = "", but: str | None = None
) -> Candidates:
    """Return the documents worth ranking for a question of these words."""
    known = {
        row.term: (row.documents, row.words)
        for row in connection.execute(
            select(DOCUMENT_TERMS).where(DOCUMENT_TERMS.c.term.in_([_ALL, *set(asked)]))
        )
    }
    size, length = known.pop(_ALL, (0, 0))
    seen = {word: count for word, (count, _) in known.items() if count > 0}
    statistics = Statistics(size, length / size if size else 1.0, seen)
    ids = _by_words(connection, sorted(seen, key=lambda word: (seen[word], word)), seen)
    if fingerprint:
        alike = (
            select(DOCUMENTS.c.id)
            .where(DOCUMENTS.c.fingerprint == fingerprint)
            .order_by(DOCUMENTS.c.time.desc())
            .limit(_ENOUGH)
        )
        ids |= set(connection.execute(alike).scalars())
    rows = connection.execute(
        select(DOCUMENTS.c.body, DOCUMENTS.c.words)
        .where(DOCUMENTS.c.id.in_(ids), DOCUMENTS.c.incident != (but or ""))
        .order_by(DOCUMENTS.c.incident)
    ).all()
    return Candidates(
        tuple(Document(**row.body) for row in rows),
        tuple(row.words.split() for row in rows),
        statistics,
    )


def _by_words(connection: Connection, terms: list[str], seen: dict[str, int]) -> set[int]:
    """Return the documents that hold the rare words, the best of them first cut off."""
    rare: list[str] = []
    held = 0
    for term in terms[:_MOST_TERMS]:
        held += seen[term]
        if held > _RARE:
            break
        rare.append(term)
    found: set[int] = set()
    if rare:
        found |= set(_match(connection, rare, any_of=True))
    # Where even rare words are common, many documents are alike: the newest of them.
    for count in (6, 4, 3, 2, 1):
        if len(found) >= _ENOUGH or not terms:
            break
        found |= set(_match(connection, terms[:count], any_of=False))
    return found


def _match(connection: Connection, terms: Sequence[str], *, any_of: bool) -> Iterable[int]:
    if connection.dialect.name == "sqlite":
        query = (" OR " if any_of else " AND ").join(f'"{term}"' for term in terms)
    else:
        query = (" | " if any_of else " & ").join(f"'{term}'" for term in terms)
        # To read a small table as a whole, the planner cuts the words of each row; the index has them.
        connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
    statement = _STATEMENTS[connection.dialect.name == "sqlite", any_of]
    return connection.execute(statement, {"query": query, "most": _FOUND}).scalars().all()


# Any of the words, the best first; or all of them, the newest first.
_STATEMENTS = {
    (True, True): text(
        "SELECT rowid FROM documents_words WHERE documents_words MATCH :query ORDER BY rank LIMIT :most"
    ),
    (True, False): text(
        "SELECT rowid FROM documents_words WHERE documents_words MATCH :query ORDER BY rowid DESC LIMIT :most"
    ),
    (False, True): text(
        "SELECT id FROM documents "
        "WHERE array_to_tsvector(string_to_array(words, ' ')) @@ CAST(:query AS tsquery) "
        "ORDER BY ts_rank(array_to_tsvector(string_to_array(words, ' ')), CAST(:query AS tsquery)) DESC, "
        "id DESC LIMIT :most"
    ),
    (False, False): text(
        "SELECT id FROM documents "
        "WHERE array_to_tsvector(string_to_array(words, ' ')) @@ CAST(:query AS tsquery) "
        "ORDER BY id DESC LIMIT :most"
    ),
}


def size(connection: Connection) -> int:
    """Return how many incidents are indexed."""
    return int(
        connection.execute(
            select(func.coalesce(func.max(DOCUMENT_TERMS.c.documents), 0)).where(
                DOCUMENT_TERMS.c.term == bindparam("all", _ALL)
            )
        ).scalar()
        or 0
    )
