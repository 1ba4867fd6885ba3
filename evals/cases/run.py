"""Runs the product on labelled texts, through the same reader that reads files."""

from __future__ import annotations

import time
from collections.abc import Iterable

from rerail.assistant.pipeline import Outcome, diagnose_texts
from rerail.evals.cases.case_file import LabelledCase
from rerail.evals.cases.score import CaseScore, score


def diagnose_text(text: str) -> Outcome:
    """Diagnose one log text."""
    return diagnose_texts({"case.log": text})


def diagnose_case(case: LabelledCase) -> Outcome:
    """Diagnose the texts of one case."""
    return diagnose_texts(case.files())


def run_cases(cases: Iterable[LabelledCase], *, digests: bool = True) -> list[CaseScore]:
    """Diagnose and score every case; times are wall milliseconds of the diagnosis alone."""
    scores = []
    diagnose_text("warm-up line\n")
    for case in cases:
        started = time.perf_counter()
        outcome = diagnose_case(case)
        milliseconds = (time.perf_counter() - started) * 1000.0
        size = _digest_size(outcome) if digests else 0
        scores.append(score(case, outcome.diagnosis, milliseconds, size))
    return scores


def _digest_size(outcome: Outcome) -> int:
    from rerail.assistant.digest import job_digest

    return len(job_digest(outcome).text.encode())
