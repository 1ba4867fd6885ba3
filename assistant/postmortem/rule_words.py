"""Summary, contributing factors and lessons without a model: one sentence per fact that holds."""

from __future__ import annotations

from rerail.assistant.postmortem.document import Sentence, Words
from rerail.assistant.postmortem.impact import Impact, impact_of, in_words
from rerail.assistant.presentation.words import type_words
from rerail.domain.diagnosis import Diagnosis, Outcome, Status
from rerail.knowledge_base.store.incidents import IncidentFile
from rerail.knowledge_base.taxonomy import leaves

_SLOW_TO_NOTICE_S = 300.0


def rule_words(file: IncidentFile) -> Words:
    """Return the sentences that the record supports."""
    impact = impact_of(file.incident)
    return Words(
        by="rules",
        summary=_summary(file, impact),
        factors=_factors(file.diagnosis, impact),
        went_well=_well(file, impact),
        went_badly=_badly(file.diagnosis, impact),
        lucky=_lucky(file.diagnosis),
    )


def cite(diagnosis: Diagnosis, *roles: str) -> tuple[str, ...]:
    """Return the names of the evidence with one of the roles, at most three."""
    return tuple(e.id for e in diagnosis.evidence if e.role in roles)[:3]


def _examples(diagnosis: Diagnosis, what: str) -> tuple[str, ...]:
    """Return the evidence that shows a consequence, else all that followed."""
    start = what.strip()[:60]
    shown = [e.id for e in diagnosis.evidence if start and start in e.text and e.role != "context"]
    return tuple(shown[:3]) or cite(diagnosis, "cascade", "teardown")


def _summary(file: IncidentFile, impact: Impact) -> list[Sentence]:
    diagnosis = file.diagnosis
    first = cite(diagnosis, "initiating") or cite(diagnosis, "context")
    sentences = [Sentence(diagnosis.summary, first)]
    confirmed = file.confirmation()
    if confirmed is not None and confirmed.failure_type not in (None, diagnosis.failure_type):
        leaf = leaves().get(confirmed.failure_type or "")
        meaning = leaf.meaning if leaf else confirmed.failure_type
        sentences = [
            Sentence(
                f"A person corrected the verdict of the rules to {confirmed.failure_type}: {meaning}",
                ("timeline",),
            )
        ]
    if impact.gpu_hours is not None:
        sentences.append(
            Sentence(f"It cost {impact.gpu_hours:g} {impact.device} hours", ("impact",))
        )
    signed = file.sign_off()
    if signed is not None and signed.resolution:
        sentences.append(Sentence(signed.resolution, ("timeline",)))
    return sentences


def _factors(diagnosis: Diagnosis, impact: Impact) -> list[Sentence]:
    found = []
    for history in diagnosis.history:
        incidents = tuple(f.incident for f in history.failures[:3])
        found.append(Sentence(f"It was the {history.says}", incidents))
    for one in diagnosis.consequences[:3]:
        ranks = f" on {len(one.ranks)} ranks" if len(one.ranks) > 1 else ""
        often = "once" if one.count == 1 else f"{one.count} times"
        found.append(
            Sentence(
                f"{type_words(one.failure_type)} followed {often}{ranks}; it is a consequence, not a cause",
                _examples(diagnosis, one.what),
            )
        )
    if impact.unnoticed_s is not None and impact.unnoticed_s >= _SLOW_TO_NOTICE_S:
        found.append(
            Sentence(
                f"The fault went unnoticed for {in_words(impact.unnoticed_s)}; the other ranks waited",
                cite(diagnosis, "cascade"),
            )
        )
    if diagnosis.cost.lost_steps:
        found.append(
            Sentence(
                f"The last checkpoint was {diagnosis.cost.lost_steps} steps old",
                cite(diagnosis, "context"),
            )
        )
    return found


def _well(file: IncidentFile, impact: Impact) -> list[Sentence]:
    diagnosis = file.diagnosis
    found = []
    if diagnosis.outcome is Outcome.FAILURE and diagnosis.status is Status.ESTABLISHED:
        found.append(
            Sentence(
                f"The rules established the cause without a person, in {max(diagnosis.elapsed_s, 0.1):.1f} s",
                cite(diagnosis, "initiating"),
            )
        )
    if diagnosis.ruled_out:
        names = ", ".join(type_words(r.failure_type) for r in diagnosis.ruled_out[:3])
        cites = tuple(e for r in diagnosis.ruled_out[:3] for e in r.evidence)[:3]
        found.append(Sentence(f"Rival causes were ruled out: {names}", cites))
    if impact.unnoticed_s is not None and impact.unnoticed_s < 60:
        found.append(
            Sentence(
                f"The failure showed itself within {in_words(impact.unnoticed_s)}",
                cite(diagnosis, "cascade", "teardown"),
            )
        )
    return found


def _badly(diagnosis: Diagnosis, impact: Impact) -> list[Sentence]:
    found = [
        Sentence(f"Evidence was not to be had: {lack.what}", ("missing",))
        for lack in diagnosis.missing[:3]
    ]
    if impact.unnoticed_s is not None and impact.unnoticed_s >= _SLOW_TO_NOTICE_S:
        found.append(
            Sentence(
                f"Nobody was told for {in_words(impact.unnoticed_s)}", cite(diagnosis, "cascade")
            )
        )
    return found


def _lucky(diagnosis: Diagnosis) -> list[Sentence]:
    if diagnosis.cost.lost_steps == 0:
        return [Sentence("A checkpoint had just been written", cite(diagnosis, "context"))]
    return []
