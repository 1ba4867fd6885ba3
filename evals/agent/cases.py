"""The cases an endpoint is scored on: labelled texts and recorded fault-lab runs, diagnosed by rules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rerail.assistant.pipeline import Outcome, diagnose_paths
from rerail.domain.diagnosis import Outcome as Result
from rerail.evals.cases.case_file import load_cases
from rerail.evals.cases.run import diagnose_case
from rerail.evals.faultlab.score import read_truths


@dataclass(frozen=True, slots=True)
class AgentCase:
    """One case: what the rules made of it, and which answers an expert would accept.

    `lines` are 1-based line numbers; empty where the case names none. `undecidable` cases want no
    failure type.
    """

    id: str
    outcome: Outcome
    types: frozenset[str]
    lines: frozenset[int] = frozenset()
    undecidable: bool = False


def text_cases(path: Path, *, most: int | None = None) -> Iterator[AgentCase]:
    """Yield the failures among labelled cases."""
    count = 0
    for case in load_cases(path):
        outcome = diagnose_case(case)
        if case.benign or outcome.diagnosis.outcome is Result.NO_FAILURE:
            continue
        if most is not None and count >= most:
            return
        count += 1
        yield AgentCase(
            case.id,
            outcome,
            case.labels,
            # Of several files a number alone says nothing.
            frozenset() if case.parts else frozenset(line + 1 for line in case.lines),
            case.undecidable,
        )


def faultlab_cases(folder: Path, *, only: tuple[str, ...] = ()) -> Iterator[AgentCase]:
    """Yield the failures among recorded runs of the fault lab."""
    for name, (_, truth, _) in read_truths(folder / "truth.json").items():
        if (only and name not in only) or truth.leaf is None or not (folder / name).is_dir():
            continue
        outcome = diagnose_paths([folder / name])
        if outcome.diagnosis.outcome is not Result.NO_FAILURE:
            yield AgentCase(name, outcome, frozenset({truth.leaf, *truth.accept_leaves}))
