"""Scores rerail and the simpler ways on the recorded runs: type, line, rank, host, false alarms."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rerail.assistant.pipeline import diagnose_paths
from rerail.domain.diagnosis import Diagnosis, Outcome
from rerail.evals.cases.baselines import keyword_line
from rerail.evals.cases.score import Tally
from rerail.evals.launchers.truth import Truth

COLUMNS = ("type", "line", "rank", "host", "wrong rank", "wrong host", "false alarm")
SUMMARY = re.compile(
    r"Root Cause \(first observed failure\):.*?"
    r"time +: (?P<time>\S+).*?host +: (?P<host>\S+).*?rank +: (?P<rank>\d+) ",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Answer:
    """What somebody says of a run; None where this way of looking gives no such answer.

    Attributes:
        failed: Whether it is called a failure.
        leaf: The type.
        line: File and line, from 1.
        ranks: Ranks that are held responsible.
        hosts: Hosts that are held responsible.
    """

    failed: bool
    leaf: str | None = None
    line: tuple[str, int] | None = None
    ranks: frozenset[int] | None = None
    hosts: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Scored:
    """One run with what was said of it and which columns are right; absent ones were not asked."""

    launcher: str
    scenario: str
    truth: Truth
    answer: Answer
    columns: dict[str, bool]

    @property
    def right(self) -> bool:
        """Tell whether nothing that was asked is wrong."""
        return all(
            right is not column.startswith(("wrong", "false"))
            for column, right in self.columns.items()
        )


Way = Callable[[Path], Answer]


def from_diagnosis(diagnosis: Diagnosis) -> Answer:
    """Return the scored part of a diagnosis: suspects, or else the place of the first fault."""
    first = diagnosis.first_fault
    ranks = set(diagnosis.suspects.ranks)
    hosts = set(diagnosis.suspects.nodes)
    if first is not None:
        ranks = ranks or ({first.rank} if first.rank is not None else set())
        hosts = hosts or ({first.node} if first.node else set())
    return Answer(
        failed=diagnosis.outcome is Outcome.FAILURE,
        leaf=diagnosis.failure_type,
        line=(first.file, first.line) if first else None,
        ranks=frozenset(ranks),
        hosts=frozenset(hosts),
    )


def rerail(folder: Path) -> Answer:
    """Return rerail's rules verdict."""
    return from_diagnosis(diagnose_paths([folder]).diagnosis)


def torchrun_summary(folder: Path) -> Answer:
    """Return what the earliest "first observed failure" of the torchrun agents says."""
    found = [match for text in _texts(folder).values() for match in SUMMARY.finditer(_bare(text))]
    if not found:
        return Answer(failed=False, ranks=frozenset(), hosts=frozenset())
    first = min(found, key=lambda match: match["time"])
    return Answer(True, ranks=frozenset({int(first["rank"])}), hosts=frozenset({first["host"]}))


def keyword(folder: Path, *, last: bool) -> Answer:
    """Return the first or last line with a word of failure, files in the order of their names."""
    texts = _texts(folder)
    for name in sorted(texts, reverse=last):
        at = keyword_line(texts[name], last=last)
        if at is not None:
            return Answer(True, line=(name, at + 1))
    return Answer(False)


WAYS: dict[str, Way] = {
    "rerail": rerail,
    "torchrun's summary": torchrun_summary,
    "first keyword": lambda folder: keyword(folder, last=False),
    "last keyword": lambda folder: keyword(folder, last=True),
}


def score(launcher: str, scenario: str, truth: Truth, answer: Answer) -> Scored:
    """Compare an answer with the truth."""
    columns: dict[str, bool] = {}
    if truth.healthy:
        columns["false alarm"] = answer.failed
        return Scored(launcher, scenario, truth, answer, columns)
    if answer.leaf is not None or answer.ranks is None or answer.line is not None:
        columns["line"] = answer.line is not None and answer.line[1] in truth.lines.get(
            answer.line[0], ()
        )
    if answer.ranks is None or answer.hosts is None:
        return Scored(launcher, scenario, truth, answer, columns)
    columns["type"] = answer.leaf in truth.leaves
    if truth.rank is not None:
        columns["rank"] = answer.ranks == {truth.rank}
    if truth.host is not None:
        columns["host"] = bool(answer.hosts) and answer.hosts <= set(truth.hosts)
    columns["wrong rank"] = not answer.ranks <= set(truth.culprits)
    columns["wrong host"] = not answer.hosts <= set(truth.hosts)
    return Scored(launcher, scenario, truth, answer, columns)


def score_all(
    truths: dict[tuple[str, str], Truth], recorded: Path, way: Way = rerail
) -> list[Scored]:
    """Score one way of looking on every run."""
    return [
        score(launcher, scenario, truth, way(recorded / launcher / scenario))
        for (launcher, scenario), truth in truths.items()
    ]


def tally(scores: list[Scored]) -> Tally:
    """Add up the columns of many runs."""
    total = Tally()
    for one in scores:
        for column, right in one.columns.items():
            total.add(column, right)
    return total


def _texts(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text(encoding="utf-8", errors="replace")
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _bare(text: str) -> str:
    """Return a text with what a collector put in front of the table's lines taken off."""
    return re.sub(r"^(?:\[pod/[^\]]*\] |[\w.-]+: |[\w.-]+ pytorch )", "", text, flags=re.MULTILINE)
