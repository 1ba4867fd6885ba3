"""Runs the agent on cases and scores it beside the rules alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from rerail.assistant.agent.explain import Explanation, explain
from rerail.assistant.agent_tools.facts import JobFacts
from rerail.assistant.agent_tools.lines import ViewSource
from rerail.assistant.record import make_incident
from rerail.evals.agent.cases import AgentCase
from rerail.settings import Settings


@dataclass(slots=True)
class Row:
    """What one way of answering scored; shares are of the cases that ask."""

    name: str
    cases: int = 0
    type_right: int = 0
    lines_asked: int = 0
    line_right: int = 0
    abstained: int = 0
    claims: int = 0
    claims_held: int = 0
    tokens: int = 0
    calls: int = 0
    seconds: float = 0.0
    cost: float = 0.0
    failed: int = 0
    prompt_log_bytes: list[int] = field(default_factory=list)
    prompt_bytes: list[int] = field(default_factory=list)
    same: int = 0
    compared: int = 0

    def count(self, case: AgentCase, leaf: str | None, line: int | None) -> None:
        """Count one answer."""
        self.cases += 1
        right = leaf in case.types or (case.undecidable and leaf is None)
        self.type_right += right
        self.abstained += leaf is None
        if case.lines:
            self.lines_asked += 1
            self.line_right += line in case.lines


def rules_row(cases: Iterable[AgentCase]) -> Row:
    """Score the rules alone."""
    row = Row("rules only")
    for case in cases:
        diagnosis = case.outcome.diagnosis
        first = diagnosis.first_fault
        row.count(case, diagnosis.failure_type, first.line if first else None)
        row.seconds += diagnosis.elapsed_s
    return row


def model_row(
    name: str,
    cases: list[AgentCase],
    settings: Settings,
    *,
    iterations: int,
    blind: bool,
    before: Callable[[str, int], None] = lambda case, iteration: None,
) -> Row:
    """Score a model; `before` is told which case and iteration comes next."""
    row = Row(name)
    for case in cases:
        incident = make_incident(case.outcome, [])
        facts = JobFacts(incident, ViewSource(case.outcome.case.views))
        ballots = []
        for iteration in range(iterations):
            before(case.id, iteration)
            said = explain(facts, settings, blind=blind)
            _add(row, case, said)
            at = said.first_fault
            ballots.append((said.failure_type, at and (at.file, at.line)))
        row.compared += len(ballots) - 1
        row.same += sum(ballot == ballots[0] for ballot in ballots[1:])
    return row


def _add(row: Row, case: AgentCase, said: Explanation) -> None:
    row.failed += said.stand == "unavailable"
    row.count(case, said.failure_type, said.first_fault.line if said.first_fault else None)
    row.claims += len(said.claims)
    row.claims_held += sum(not claim.problem for claim in said.claims)
    row.tokens += said.tokens_in + said.tokens_out
    row.calls += said.calls
    row.seconds += said.seconds
    row.cost += said.cost
    if said.first_prompt_bytes:
        row.prompt_log_bytes.append(said.first_prompt_log_bytes)
        row.prompt_bytes.append(said.first_prompt_bytes)
