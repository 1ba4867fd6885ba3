"""What the pages show, read from the store into views; nothing here writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import Engine

from rerail.assistant.presentation.incident import ListRow, list_row
from rerail.assistant.presentation.verdict import verdict_view
from rerail.assistant.presentation.words import type_words
from rerail.assistant.response import load_whole
from rerail.assistant.since import since_iso
from rerail.assistant.stored import opened_store
from rerail.knowledge_base.store.engine import reading
from rerail.knowledge_base.store.incidents import IncidentFile, IncidentRow, list_incidents, load
from rerail.knowledge_base.taxonomy import category_titles, leaves

MOST_ROWS = 200
_WANTED = 1000


@dataclass(frozen=True, slots=True)
class Filters:
    """What a list is narrowed to: words in any column, a failure type, a node, a job, a beginning."""

    q: str = ""
    type: str = ""
    node: str = ""
    job: str = ""
    since: str = ""
    healthy: bool = False


@dataclass(frozen=True, slots=True)
class Bar:
    """One row of a small bar chart: name, count, share of the largest in percent, and what else to say."""

    name: str
    count: float
    percent: int
    more: str = ""


@dataclass(frozen=True, slots=True)
class Overview:
    """The list of incidents with what stands out in it."""

    rows: tuple[ListRow, ...]
    total: int
    days: tuple[Bar, ...]
    categories: tuple[Bar, ...]
    nodes: tuple[Bar, ...]
    gpu_hours: float


@contextmanager
def store() -> Iterator[Engine]:
    """Open the store for one request."""
    with opened_store() as engine:
        yield engine


def incident(name: str) -> IncidentFile:
    """Return everything on one incident.

    Raises:
        UsageError: No incident has this id.
    """
    with store() as engine, reading(engine) as connection:
        return load_whole(connection, name)


def overview(filters: Filters) -> Overview:
    """Return the incidents that fit, the latest first, and what stands out among them."""
    since = None
    if filters.since:
        since = since_iso(filters.since)
    with store() as engine, reading(engine) as connection:
        found = list_incidents(
            connection,
            since=since,
            failure_type=filters.type or None,
            node=filters.node or None,
            job=filters.job or None,
            healthy=filters.healthy,
            limit=_WANTED,
        )
        files = [load(connection, row.id) for row in found]
    kept = [file for file in files if _fits(file, filters.q.lower())]
    rows = tuple(_row(file) for file in kept[:MOST_ROWS])
    failed = [file for file in kept if file.row.failed]
    return Overview(
        rows=rows,
        total=len(kept),
        days=_bars(Counter(file.row.time[:10] for file in failed), ordered=True)[-30:],
        categories=_categories(failed),
        nodes=_bars(Counter(n for file in failed for n in file.diagnosis.suspects.nodes))[:8],
        gpu_hours=round(sum(file.diagnosis.cost.idle_gpu_hours or 0.0 for file in failed), 1),
    )


def _row(file: IncidentFile) -> ListRow:
    view = verdict_view(file.diagnosis)
    corrected = file.row.confirmed_type not in (None, file.row.failure_type)
    headline = "" if corrected else view.headline
    return list_row(file.row, headline, view.status)


def _fits(file: IncidentFile, words: str) -> bool:
    row: IncidentRow = file.row
    text = " ".join(
        (row.id, row.cluster, row.job or "", row.true_type or "", type_words(row.true_type), file.diagnosis.summary)
    )  # fmt: skip
    return all(word in text.lower() for word in words.split())


def _categories(files: list[IncidentFile]) -> tuple[Bar, ...]:
    titles, known = category_titles(), leaves()
    count: Counter[str] = Counter()
    lost: Counter[str] = Counter()
    for file in files:
        leaf = known.get(file.row.true_type or "")
        name = titles[leaf.category] if leaf else "cause not known"
        count[name] += 1
        lost[name] += round(file.diagnosis.cost.idle_gpu_hours or 0.0, 2)  # type: ignore[assignment]
    return tuple(
        Bar(bar.name, bar.count, bar.percent, f"{lost[bar.name]:.1f} GPU-h") for bar in _bars(count)
    )


def _bars(count: Counter[str], *, ordered: bool = False) -> tuple[Bar, ...]:
    most = max(count.values(), default=1)
    rows = sorted(count.items()) if ordered else count.most_common()
    return tuple(Bar(name, n, round(100 * n / most)) for name, n in rows)
