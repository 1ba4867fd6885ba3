"""How long the memory of past incidents takes to answer, on the store itself: SQLite and PostgreSQL."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path

from sqlalchemy import Engine, insert, select

from rerail.errors import RerailError
from rerail.evals.bench.bars import Bar
from rerail.evals.bench.generate import Dataset
from rerail.evals.cluster.postgres import running_postgres
from rerail.knowledge_base.retrieval.bm25 import words
from rerail.knowledge_base.retrieval.documents import (
    CORE_WEIGHT,
    INCIDENT,
    Document,
    wording,
)
from rerail.knowledge_base.retrieval.index import add_documents
from rerail.knowledge_base.retrieval.knowledge import open_knowledge
from rerail.knowledge_base.retrieval.search import Question
from rerail.knowledge_base.rules import load_rules
from rerail.knowledge_base.store.alike import alike
from rerail.knowledge_base.store.engine import open_store, reading, writing
from rerail.knowledge_base.store.incidents import IncidentRow, find_id, row_of
from rerail.knowledge_base.store.tables import INCIDENTS
from rerail.settings import Settings

SIZES = ((10_000, 0.2), (1_000_000, 0.5))
_BATCH = 5_000
_QUESTIONS = 12


def measure(data: Dataset, *, most: int) -> list[Bar]:
    """Measure a search among `most` signed-off incidents, and among 10,000, on each store."""
    bars = []
    for size, bar in SIZES:
        count = min(size, most)
        for name in ("SQLite", "PostgreSQL"):
            with ExitStack() as stack:
                folder = data.folder / f"similar-{name.lower()}-{size}"
                try:
                    settings = _store(name, folder, stack)
                    seconds = _measure(settings, count)
                except RerailError as error:
                    seconds, note = None, error.message
                else:
                    note = f"the slowest of {_QUESTIONS} questions among {count:,} incidents"
                what = f"similar, {size:,} incidents, {name}"
                bars.append(
                    Bar(
                        "similar",
                        what,
                        bar,
                        seconds,
                        "the bar itself",
                        at_most=True,
                        unit="s",
                        note=note,
                    )
                )
    return bars


def _store(name: str, folder: Path, stack: ExitStack) -> Settings:
    if name == "SQLite":
        return Settings(data_dir=folder, embedding_model="none")
    url = stack.enter_context(running_postgres())
    return Settings(store_url=url, data_dir=folder, embedding_model="none")


def _measure(settings: Settings, count: int) -> float:
    engine = open_store(settings)
    try:
        fill(engine, count)
        return max(seconds for seconds in _ask(engine, settings, count))
    finally:
        engine.dispose()


def _ask(engine: Engine, settings: Settings, count: int) -> Iterator[float]:
    chance = random.Random(2)
    for _ in range(_QUESTIONS):
        number = chance.randrange(count)
        asked = made_up(number)
        began = time.perf_counter()
        with reading(engine) as connection:
            name = find_id(connection, asked.id)
            found = connection.execute(select(INCIDENTS).where(INCIDENTS.c.id == name)).one()
            row: IncidentRow = row_of(found)
            alike(connection, row)
        question = Question(
            asked.text,
            core=asked.core,
            fingerprint=asked.fingerprint,
            but=asked.id,
            time=asked.time,
        )
        hits = open_knowledge(engine, settings).search(question, kind=INCIDENT)
        assert hits, "a search among incidents of this kind found none"
        yield time.perf_counter() - began


def fill(engine: Engine, count: int) -> None:
    """Fill a store with signed-off incidents: the wordings of the rules' examples, and notes of people."""
    for start in range(0, count, _BATCH):
        ones = [made_up(number) for number in range(start, min(count, start + _BATCH))]
        with writing(engine) as connection:
            connection.execute(insert(INCIDENTS), [_row(one) for one in ones])
            add_documents(connection, ones, [_words(one) for one in ones])
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        # PostgreSQL's own housekeeping does this a minute later; SQLite keeps what it learns.
        connection.exec_driver_sql("ANALYZE")


_EXAMPLES: list[tuple[str, str, str]] = []
_NOTES = (
    "halved the micro batch drained replaced cable switch firmware restarted checkpoint quota cleaned "
    "driver upgraded library pinned seed dataset shard repaired owner told ticket vendor returned".split()
)


@lru_cache(maxsize=4096)
def _wording(text: str) -> str:
    return wording(text.splitlines())


@lru_cache(maxsize=4096)
def _cut(core: str) -> tuple[str, ...]:
    return tuple(words(core))


def _words(one: Document) -> list[str]:
    """Return the words of a document as the index cuts them, from parts that are cut once."""
    core = _cut(one.core)
    said = one.text.removeprefix(f"{one.core}\n").split()
    return [*core * CORE_WEIGHT, *_cut(one.title), *said]


def made_up(number: int) -> Document:
    """Return the incident of a number, always the same."""
    if not _EXAMPLES:
        _EXAMPLES.extend(
            (rule.id, rule.leaf or "unknown", rule.matches[0])
            for rule in load_rules()
            if rule.matches
        )
    chance = random.Random(number)
    rule, leaf, text = _EXAMPLES[chance.randrange(len(_EXAMPLES))]
    core = _wording(text)
    said = " ".join(chance.choice(_NOTES) for _ in range(12)) + f" ticket{number % 5000}"
    when = f"20{20 + number % 6:02d}-{1 + number % 12:02d}-{1 + number % 28:02d}T00:00:00.000Z"
    return Document(
        id=f"INC-{number:010d}",
        kind=INCIDENT,
        title=leaf,
        text=f"{core}\n{said}",
        core=core,
        leaf=leaf,
        cluster="bench",
        time=when,
        fingerprint=f"{rule[:30]}",
    )


def _row(one: Document) -> dict[str, object]:
    return {
        "id": one.id,
        "identity": one.id,
        "cluster": one.cluster,
        "recorded_at": one.time,
        "occurred_at": one.time,
        "outcome": "failure",
        "status": "established",
        "failure_type": one.leaf,
        "fingerprint": one.fingerprint,
        "confirmed": "right",
        "confirmed_type": one.leaf,
        "signed_off_at": one.time,
        "record": {},
    }
