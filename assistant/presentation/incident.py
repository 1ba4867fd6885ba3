"""An incident as it is shown: its verdict, one timeline of all sources, its ranks, what people said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from rerail.assistant.presentation.verdict import VerdictView, verdict_view
from rerail.assistant.presentation.words import part_words, source_word, type_words
from rerail.domain.diagnosis import Diagnosis
from rerail.domain.incident import RankFact
from rerail.knowledge_base.store.incidents import IncidentFile, IncidentRow

WORST = 50
_ORDER = {"suspect": 0, "reported": 1, "consequence": 2, "quiet": 3}


@dataclass(frozen=True, slots=True)
class TimelineRow:
    """One entry of the timeline: ISO time in UTC, who wrote it, what it says, what it cites."""

    time: str
    clock: str
    source: str
    word: str
    text: str
    actor: str
    cites: tuple[str, ...]
    kind: str = ""


@dataclass(frozen=True, slots=True)
class RankRow:
    """One rank at the end: where it ran, its part in words and as a mark, its last step."""

    rank: int
    node: str
    part: str
    word: str
    mark: str
    last_step: str
    last_at: str
    failed_at: str


@dataclass(frozen=True, slots=True)
class ListRow:
    """One incident in a list."""

    id: str
    when: str
    job: str
    headline: str
    status: str
    type_id: str
    said: str
    failed: bool


@dataclass(frozen=True, slots=True)
class IncidentView:
    """Everything of one incident that a face shows."""

    id: str
    when: str
    cluster: str
    job: str
    verdict: VerdictView
    timeline: tuple[TimelineRow, ...]
    ranks: tuple[RankRow, ...]
    rank_count: int
    rank_columns: frozenset[str]
    """The fields of `ranks` that hold anything."""
    parts: tuple[tuple[str, str, int], ...]
    confirmed: str
    signed: str
    versions: tuple[tuple[str, str], ...]


def incident_view(file: IncidentFile) -> IncidentView:
    """Return the view of an incident with everything that was noted on it."""
    incident, said, signed = file.incident, file.confirmation(), file.sign_off()
    ranks = incident.snapshot.ranks
    counted: Counter[str] = Counter(fact.part for fact in ranks)
    words = ""
    if said is not None:
        other = f": {type_words(said.failure_type)}" if said.failure_type else ""
        words = f"{said.verdict}{other}, says {said.by}"
    shown = tuple(_rank(fact) for fact in worst_first(ranks)[:WORST])
    return IncidentView(
        id=file.row.id,
        when=_when(file.row.time),
        cluster=file.row.cluster,
        job=job_name(file.row),
        verdict=verdict_view(file.diagnosis),
        timeline=tuple(
            TimelineRow(
                e.time, e.time[11:19], str(e.source), source_word(str(e.source)), e.text, e.actor, e.evidence, e.kind
            )
            for e in file.timeline
        ),
        ranks=shown,
        rank_count=len(ranks),
        rank_columns=frozenset(name for name in RankRow.__slots__ if any(getattr(r, name) for r in shown)),
        parts=tuple((*part_words(part), counted[part]) for part in _ORDER if counted[part]),
        confirmed=words,
        signed="" if signed is None else f"{signed.by}, {signed.time[:10]}",
        versions=tuple(incident.snapshot.versions.items()),
    )  # fmt: skip


def list_row(row: IncidentRow, diagnosis: Diagnosis) -> ListRow:
    """Return one incident as a list shows it; a corrected one is named by the type that a person gave."""
    corrected = row.confirmed_type not in (None, row.failure_type)
    view = verdict_view(diagnosis)
    said = {"right": "confirmed", "partly": "partly right", "wrong": "corrected"}
    return ListRow(
        id=row.id,
        when=_when(row.time),
        job=job_name(row),
        # What it did to the others is for the page of the incident.
        headline=_begun(type_words(row.true_type)) if corrected else view.headline.split(";")[0],
        status=view.status,
        type_id=row.true_type or "",
        said="signed off" if row.signed_off_at else said.get(row.confirmed or "", ""),
        failed=row.failed,
    )


def _begun(words: str) -> str:
    return words[:1].upper() + words[1:]


def job_name(row: IncidentRow) -> str:
    """Return the job and its attempt, or nothing where no scheduler told it."""
    if row.job is None:
        return ""
    return f"{row.job}" + (f" attempt {row.attempt}" if row.attempt else "")


def _when(time: str) -> str:
    return f"{time[:10]} {time[11:16]} UTC"


def worst_first(ranks: Iterable[RankFact]) -> list[RankFact]:
    """Return ranks by their part in the failure, then those that came least far."""
    return sorted(ranks, key=_badness)


def _badness(fact: RankFact) -> tuple[int, int, int]:
    return (_ORDER[fact.part], fact.last_step if fact.last_step is not None else -1, fact.rank)


def _rank(fact: RankFact) -> RankRow:
    word, mark = part_words(fact.part)
    return RankRow(
        fact.rank,
        fact.node or "",
        fact.part,
        word,
        mark,
        "" if fact.last_step is None else str(fact.last_step),
        (fact.last_step_at or "")[11:19],
        (fact.failed_at or "")[11:19],
    )
