"""One case of each cause of the simulated suite, and healthy jobs of mixed roles."""

from __future__ import annotations

import pytest

from rerail.evals.patterns.cases import Case, all_cases
from rerail.evals.patterns.command import score
from rerail.tools.profiles.cause_table import cause_of, causes


def smallest() -> list[Case]:
    best: dict[str, Case] = {}
    for case in all_cases(seed=4):
        kept = best.get(case.cause)
        if kept is None or case.shape.workers < kept.shape.workers:
            best[case.cause] = case
    return list(best.values())


@pytest.mark.parametrize("case", smallest(), ids=lambda case: case.cause)
def test_function_and_workers_are_named(case: Case) -> None:
    found = score(case)
    assert found.right, found.said


def test_the_suite_is_as_large_as_it_says() -> None:
    cases = all_cases()
    faulty = [case for case in cases if case.faults]
    assert len(faulty) >= 80
    assert min(case.shape.workers for case in cases) == 64
    assert max(case.shape.workers for case in cases) == 3400
    assert len({case.faults[0].kind for case in faulty}) == 10


@pytest.mark.parametrize("cause", causes(), ids=lambda cause: cause.id)
def test_each_cause_is_found_by_its_example(cause) -> None:
    row = cause.example
    assert cause_of(row["kind"], row["work"], row["spread"], frozenset(row["facts"])) is cause
