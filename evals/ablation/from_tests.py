"""The texts that the project's tests diagnose, and the runs that it recorded, as cases: what a test holds it also guards.

Their answers are what the product says while the tests pass, so they measure nothing; they notice.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar
from unittest.mock import patch

import pytest

from rerail.assistant import pipeline
from rerail.domain.diagnosis import Diagnosis
from rerail.domain.diagnosis import Outcome as Decided
from rerail.evals.cases.case_file import LabelledCase

_LONGEST = 6_000
_FOLDER = Path("tests/knowledge_base")
_RECORDED = ("tests/data/launchers/*/*", "tests/data/faultlab/*", "tests/data/slurm/*")
T = TypeVar("T")


def cases_of_tests(root: Path) -> list[LabelledCase]:
    """Return each text that the tests of the knowledge base diagnose in a checkout, once, and each recorded run.

    Args:
        root: the checkout.
    """
    found: dict[str, LabelledCase] = {}
    real = pipeline.diagnose_texts

    def kept(files: Mapping[str, str]) -> pipeline.Outcome:
        outcome = real(files)
        if sum(map(len, files.values())) <= _LONGEST:
            test = os.environ.get("PYTEST_CURRENT_TEST", "").split(" ")[0]
            case = _case(f"{test}#{len(found)}", files, outcome.diagnosis)
            found.setdefault(repr(sorted(files.items())), case)
        return outcome

    with patch.object(pipeline, "diagnose_texts", kept):
        pytest.main(["-q", "-p", "no:cacheprovider", "--no-header", str(root / _FOLDER)])
    runs = (run for pattern in _RECORDED for run in sorted(root.glob(pattern)) if run.is_dir())
    return [*found.values(), *map(_recorded, runs)]


def _recorded(run: Path) -> LabelledCase:
    """Return a folder of a job's files as a case."""
    files = {
        str(path.relative_to(run)): path.read_text(encoding="utf-8", errors="replace")
        for path in sorted(run.rglob("*"))
        if path.suffix in (".log", ".out", ".err", ".txt")
    }
    diagnosis = pipeline.diagnose_texts(files).diagnosis
    return _case(f"{run.parent.name}:{run.name}", files, diagnosis)


def _case(name: str, files: Mapping[str, str], diagnosis: Diagnosis) -> LabelledCase:
    whole = {name: text if text.endswith("\n") else text + "\n" for name, text in files.items()}
    failed = diagnosis.outcome is Decided.FAILURE
    label = diagnosis.failure_type or ("unknown" if failed else "no_failure")
    case = LabelledCase(
        id=name.rpartition("/")[2],
        log="".join(whole.values()),
        label=label,
        category="",
        labels=frozenset({label}),
        lines=frozenset(),
        actions=frozenset({str(diagnosis.recovery.action)}),
        rank=_only(diagnosis.suspects.ranks),
        node=_only(diagnosis.suspects.nodes),
        undecidable=diagnosis.outcome is Decided.INCONCLUSIVE,
        difficulty="normal",
        parts=tuple((name, len(text.splitlines())) for name, text in whole.items()),
    )
    first = diagnosis.first_fault
    at = case.place(first.file, first.line) if failed and first is not None else None
    return replace(case, lines=frozenset({at})) if at is not None else case


def _only(named: Sequence[T]) -> T | None:
    return named[0] if len(named) == 1 else None
