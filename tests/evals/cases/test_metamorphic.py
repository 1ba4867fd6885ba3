"""However a job's log is written, cause and place stay: certainty may be lost, nobody else is accused."""

from __future__ import annotations

import pytest

from rerail.domain.diagnosis import Outcome
from rerail.evals.cases.case_file import LabelledCase, load_cases
from rerail.evals.cases.kept import KEPT
from rerail.evals.cases.paraphrase import REWRITES, paraphrase
from rerail.evals.cases.run import run_cases
from rerail.evals.cases.score import CaseScore

# Where the rewriting says something else than the case did.
CHANGED = {
    (
        "among 1000 healthy lines",
        "c016_wrong_interface_lo",
    ): "steps in front of the connection: the interface was right",
    (
        "among 1000 healthy lines",
        "c033_p2p_hang_driver560",
    ): "what a person says of a job is small beside its steps",
    (
        "other ranks",
        "c023_shm_ci_pods_new_nccl",
    ): "NCCL's own lines keep the rank that the labels lose",
    (
        "every line twice",
        "n018_finalizer_tracebacks",
    ): "two tracebacks line by line: completed, and its teardown failed",
}


_NAMES = ("other hosts", "other ranks")


def _pasted() -> set[str]:
    return {case.id for file in KEPT if file.stem == "pasted" for case in load_cases(file)}


@pytest.fixture(scope="module")
def base() -> dict[str, CaseScore]:
    return {one.case.id: one for one in run_cases(every_case(), digests=False)}


def every_case() -> list[LabelledCase]:
    """Return the cases on place and the second set; `rerail eval cases` rewrites the first one as well."""
    files = [file for file in KEPT if file.stem in ("dev2", "place", "pasted")]
    return [case for file in files for case in load_cases(file)]


@pytest.mark.parametrize("rewrite", REWRITES)
def test_the_same_job_written_in_another_way_accuses_nobody_else(
    rewrite: str, base: dict[str, CaseScore]
) -> None:
    wrong = []
    # The rewriting knows hosts and ranks in labels, and none in tables, lists and headings.
    cases = [c for c in every_case() if rewrite not in _NAMES or c.id not in _pasted()]
    for one in run_cases(paraphrase(cases, rewrite, 1), digests=False):
        case, first = one.case, base[one.case.id]
        if (rewrite, case.id) in CHANGED:
            continue
        found = one.diagnosis
        if first.type and not one.type and found.outcome is not Outcome.INCONCLUSIVE:
            wrong.append(f"{case.id}: {found.failure_type}, not {case.label}")
        if first.rank and found.suspects.ranks and case.rank not in found.suspects.ranks:
            wrong.append(f"{case.id}: ranks {found.suspects.ranks}, not {case.rank}")
        if first.node and found.suspects.nodes and case.node not in found.suspects.nodes:
            wrong.append(f"{case.id}: nodes {found.suspects.nodes}, not {case.node}")
    assert wrong == []
