"""What the pages show, read from the store into views; nothing here writes."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

from rerail.assistant.presentation.incident import ListRow, list_row
from rerail.assistant.presentation.words import type_words
from rerail.assistant.since import since_iso
from rerail.domain.diagnosis import Diagnosis
from rerail.knowledge_base.store.engine import reading
from rerail.knowledge_base.store.incidents import IncidentRow, diagnosis_of, list_incidents
from rerail.knowledge_base.store.opened import opened_store
from rerail.knowledge_base.taxonomy import category_titles, leaves

MOST_ROWS = 200
_WANTED = 1000
Found = tuple[IncidentRow, Diagnosis]


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


def overview(filters: Filters) -> Overview:
    """Return the incidents that fit, the latest first, and what stands out among them."""
    kept = _found(filters)
    failed = [one for one in kept if one[0].failed]
    return Overview(
        rows=_rows(kept),
        total=len(kept),
        days=_bars(Counter(row.time[:10] for row, _ in failed), ordered=True)[-30:],
        categories=_categories(failed),
        nodes=_bars(Counter(n for _, said in failed for n in said.suspects.nodes))[:8],
        gpu_hours=round(sum(said.cost.idle_gpu_hours or 0.0 for _, said in failed), 1),
    )


def listed(filters: Filters) -> tuple[ListRow, ...]:
    """Return the incidents that fit, the latest first, as a list shows them."""
    return _rows(_found(filters))


def _found(filters: Filters) -> list[Found]:
    since = since_iso(filters.since) if filters.since else None
    with opened_store() as engine, reading(engine) as connection:
        rows = list_incidents(
            connection,
            since=since,
            failure_type=filters.type or None,
            node=filters.node or None,
            job=filters.job or None,
            healthy=filters.healthy,
            limit=_WANTED,
        )
        found = [(row, diagnosis_of(connection, row.id)) for row in rows]
    words = filters.q.lower().split()
    return [one for one in found if _fits(one, words)]


def _rows(found: list[Found]) -> tuple[ListRow, ...]:
    return tuple(list_row(row, diagnosis) for row, diagnosis in found[:MOST_ROWS])


def _fits(one: Found, words: list[str]) -> bool:
    row, diagnosis = one
    text = " ".join(
        (row.id, row.cluster, row.job or "", row.true_type or "", type_words(row.true_type), diagnosis.summary)
    ).lower()  # fmt: skip
    return all(word in text for word in words)


def _categories(found: list[Found]) -> tuple[Bar, ...]:
    titles, known = category_titles(), leaves()
    count: Counter[str] = Counter()
    lost: defaultdict[str, float] = defaultdict(float)
    for row, diagnosis in found:
        leaf = known.get(row.true_type or "")
        name = titles[leaf.category] if leaf else "cause not known"
        count[name] += 1
        if diagnosis.cost.idle_gpu_hours is not None:
            lost[name] += diagnosis.cost.idle_gpu_hours
    said = {name: f"{_hours(hours)} GPU-h" for name, hours in lost.items()}
    return tuple(
        Bar(bar.name, bar.count, bar.percent, said.get(bar.name, "")) for bar in _bars(count)
    )


def _hours(hours: float) -> str:
    return "< 0.1" if 0 < hours < 0.05 else f"{hours:,.1f}"


def _bars(count: Counter[str], *, ordered: bool = False) -> tuple[Bar, ...]:
    most = max(count.values(), default=1)
    rows = sorted(count.items()) if ordered else count.most_common()
    return tuple(Bar(name, n, round(100 * n / most)) for name, n in rows)
