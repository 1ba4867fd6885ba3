"""Recurrences: past incidents to search in, and later ones with a known answer.

`rewritten`: the same log with other hosts, numbers, ranks and company. `other job`: another case of
the same cause, from other software or in other words. `unseen`: a cause that no past incident has.
`rule examples`: one example line of each rule is a past incident, and asks for the other rules of
its failure type. The weight of the vectors was chosen on this set.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rerail.assistant.record import make_incident
from rerail.domain.diagnosis import Outcome as Result
from rerail.domain.evidence import Role
from rerail.domain.incident import Incident
from rerail.evals.agent.cases import faultlab_cases
from rerail.evals.cases.case_file import LabelledCase, load_cases
from rerail.evals.cases.paraphrase import REWRITES, paraphrase
from rerail.evals.cases.run import diagnose_case
from rerail.knowledge_base.retrieval.documents import (
    INCIDENT,
    Document,
    incident_document,
    wording,
)
from rerail.knowledge_base.retrieval.knowledge import question_of
from rerail.knowledge_base.retrieval.search import Question
from rerail.knowledge_base.rules import load_rules
from rerail.knowledge_base.taxonomy import leaves


@dataclass(frozen=True, slots=True)
class Asked:
    """One later incident: the past ones that answer it; none for an unseen cause."""

    id: str
    question: Question
    leaf: str
    answers: frozenset[str]
    recurs: bool = False


@dataclass(frozen=True, slots=True)
class RetrievalSet:
    """Documents and questions of one kind."""

    name: str
    documents: tuple[Document, ...]
    questions: tuple[Asked, ...]


def build_sets(
    cases: Path | None, recorded: Path | None, *, seed: int = 1, held_out: Path | None = None
) -> list[RetrievalSet]:
    """Return the sets that the given material allows.

    What is searched was chosen on `cases`; `held_out` are cases that had no part in it.
    """
    material: list[tuple[str, str, Incident]] = []
    texts = load_cases(cases) if cases is not None else []
    failures = [case for case in texts if not case.benign and not case.undecidable]
    for case in failures:
        material.append((case.id, case.label, _incident(case)))
    if recorded is not None:
        for one in faultlab_cases(recorded):
            truth = sorted(one.types)
            leaf = one.outcome.diagnosis.failure_type
            name = leaf if leaf in one.types else truth[0]
            material.append((one.id, name or truth[0], make_incident(one.outcome, [])))
    sets = []
    if not material:
        return []
    if failures:
        sets.append(_rewritten(failures, material, seed))
    sets.append(_other_job(material))
    sets.append(replace(_other_job(material, ()), name="other job, wordings alone"))
    if held_out is not None:
        apart = [
            (c.id, c.label, _incident(c))
            for c in load_cases(held_out)
            if not (c.benign or c.undecidable)
        ]
        sets.append(replace(_other_job(apart), name="held out"))
        sets.append(replace(_other_job(apart, ()), name="held out, wordings alone"))
    sets.append(_unseen(material))
    sets.append(_rule_examples())
    return [one for one in sets if one.questions]


def _incident(case: LabelledCase) -> Incident:
    return make_incident(diagnose_case(case), [])


def _rewritten(
    cases: list[LabelledCase], material: list[tuple[str, str, Incident]], seed: int
) -> RetrievalSet:
    documents = [incident_document(incident, leaf) for _, leaf, incident in material]
    by_leaf: dict[str, set[str]] = defaultdict(set)
    for document in documents:
        by_leaf[document.leaf or ""].add(document.id)
    questions = []
    for rewrite in REWRITES:
        for case in paraphrase(cases, rewrite, seed):
            outcome = diagnose_case(case)
            if outcome.diagnosis.outcome is Result.NO_FAILURE:
                continue
            questions.append(
                Asked(
                    f"{case.id}/{rewrite}",
                    question_of(make_incident(outcome, [])),
                    case.label,
                    frozenset(by_leaf[case.label]),
                    recurs=True,
                )
            )
    return RetrievalSet("rewritten", tuple(documents), tuple(questions))


def _other_job(
    material: list[tuple[str, str, Incident]], parts: Sequence[str] | None = None
) -> RetrievalSet:
    """Each incident is asked about once; it is left out of its own answers."""
    documents = [incident_document(incident, leaf, parts=parts) for _, leaf, incident in material]
    ids: dict[str, set[str]] = defaultdict(set)
    for _, leaf, incident in material:
        ids[leaf].add(incident.id)
    questions = [
        Asked(name, question_of(incident, parts), leaf, frozenset(ids[leaf] - {incident.id}))
        for name, leaf, incident in material
        if len(ids[leaf]) > 1
    ]
    return RetrievalSet("other job", tuple(documents), tuple(questions))


def _unseen(material: list[tuple[str, str, Incident]]) -> RetrievalSet:
    """Causes with one incident only: with that one left out, nothing on record answers."""
    count: dict[str, int] = defaultdict(int)
    for _, leaf, _ in material:
        count[leaf] += 1
    documents = [incident_document(incident, leaf) for _, leaf, incident in material]
    questions = [
        Asked(name, question_of(incident), leaf, frozenset())
        for name, leaf, incident in material
        if count[leaf] == 1
    ]
    return RetrievalSet("unseen", tuple(documents), tuple(questions))


def _rule_examples() -> RetrievalSet:
    known = leaves()
    documents = []
    for rule in load_rules():
        if rule.role is not Role.INITIATING or not rule.matches or rule.leaf not in known:
            continue
        text = wording(rule.matches[0].splitlines())
        title = f"{rule.leaf}: {known[rule.leaf].meaning}"
        documents.append(Document(rule.id, INCIDENT, title, text, core=text, leaf=rule.leaf))
    ids: dict[str | None, set[str]] = defaultdict(set)
    for one in documents:
        ids[one.leaf].add(one.id)
    questions = [
        Asked(
            one.id,
            Question(one.text, core=one.core, but=one.id),
            one.leaf or "",
            frozenset(ids[one.leaf] - {one.id}),
        )
        for one in documents
        if len(ids[one.leaf]) > 1
    ]
    return RetrievalSet("rule examples", tuple(documents), tuple(questions))
