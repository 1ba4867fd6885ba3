"""Runs the product on labelled texts, through the same reader that reads files."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import lru_cache

from rerail.assistant.pipeline import Outcome, diagnose_collection, rules, scan_plan
from rerail.evals.cases.case_file import LabelledCase
from rerail.evals.cases.score import CaseScore, score
from rerail.log_parsers.collect import assemble
from rerail.log_parsers.scan import Scanner, make_scanner
from rerail.log_parsers.survey import survey_bytes


@lru_cache(maxsize=1)
def _scanner() -> Scanner:
    plan = scan_plan()
    return make_scanner(plan.signatures, cache=plan.cache, engine=plan.engine)


def diagnose_text(text: str) -> Outcome:
    """Diagnose one log text."""
    one = survey_bytes(
        "case.log", text.encode("utf-8", "surrogateescape"), rules().signatures, _scanner()
    )
    return diagnose_collection(assemble([one]))


def run_cases(cases: Iterable[LabelledCase], *, digests: bool = True) -> list[CaseScore]:
    """Diagnose and score every case; times are wall milliseconds of the diagnosis alone."""
    scores = []
    diagnose_text("warm-up line\n")
    for case in cases:
        started = time.perf_counter()
        outcome = diagnose_text(case.log)
        milliseconds = (time.perf_counter() - started) * 1000.0
        size = _digest_size(case.log, outcome) if digests else 0
        scores.append(score(case, outcome.diagnosis, milliseconds, size))
    return scores


def _digest_size(log: str, outcome: Outcome) -> int:
    from rerail.assistant.digest import job_digest

    return len(job_digest(outcome).text.encode())
