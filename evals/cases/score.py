"""Scores diagnoses against labelled cases, one yes or no per question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rerail.domain.diagnosis import Diagnosis, Outcome, Status
from rerail.evals.cases.case_file import LabelledCase
from rerail.knowledge_base.taxonomy import leaves


@dataclass(frozen=True, slots=True)
class CaseScore:
    """The answers on one case; None where the case does not ask."""

    case: LabelledCase
    diagnosis: Diagnosis
    type: bool
    category: bool
    line: bool | None
    near: bool | None
    rank: bool | None
    node: bool | None
    action: bool
    false_alarm: bool | None
    established_wrong: bool
    inconclusive: bool
    milliseconds: float
    digest_bytes: int


@dataclass(slots=True)
class Tally:
    """Right answers and questions asked, per column."""

    right: dict[str, int] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)

    def add(self, column: str, answer: bool | None) -> None:
        """Count one answer; None was not asked."""
        if answer is None:
            return
        self.asked[column] = self.asked.get(column, 0) + 1
        self.right[column] = self.right.get(column, 0) + bool(answer)

    def share(self, column: str) -> float:
        """Return the share of right answers, 1.0 where none was asked."""
        asked = self.asked.get(column, 0)
        return self.right.get(column, 0) / asked if asked else 1.0


QUESTIONS = ("type", "category", "line", "near", "rank", "node", "action")


def score(
    case: LabelledCase, diagnosis: Diagnosis, milliseconds: float, digest_bytes: int
) -> CaseScore:
    """Compare one diagnosis with its case. Accepted alternatives count as right."""
    given = diagnosis.failure_type
    decided = diagnosis.outcome is not Outcome.INCONCLUSIVE
    type_right = given in case.labels or (case.undecidable and not decided)
    known = leaves()
    categories = {known[label].category if label in known else label for label in case.labels}
    first = diagnosis.first_fault
    at = case.place(first.file, first.line) if first else None
    ranks = set(diagnosis.suspects.ranks) | ({first.rank} if first else set())
    nodes = set(diagnosis.suspects.nodes) | ({first.node} if first else set())
    asks_line = bool(case.lines)
    return CaseScore(
        case=case,
        diagnosis=diagnosis,
        type=type_right,
        category=type_right or diagnosis.category in categories,
        line=(at in case.lines) if asks_line else None,
        near=(at is not None and any(abs(at - x) <= 2 for x in case.lines)) if asks_line else None,
        rank=(case.rank in ranks) if case.rank is not None else None,
        node=(case.node in nodes) if case.node else None,
        action=str(diagnosis.recovery.action) in case.actions,
        false_alarm=(diagnosis.outcome is Outcome.FAILURE) if case.benign else None,
        established_wrong=diagnosis.status is Status.ESTABLISHED and not type_right,
        inconclusive=not decided,
        milliseconds=milliseconds,
        digest_bytes=digest_bytes,
    )


def tally(scores: Sequence[CaseScore]) -> Tally:
    """Add up the scores of many cases."""
    total = Tally()
    for one in scores:
        for column in QUESTIONS:
            total.add(column, getattr(one, column))
        total.add("false_alarm", one.false_alarm)
        total.add("established_wrong", one.established_wrong)
        total.add("inconclusive", one.inconclusive)
    return total
