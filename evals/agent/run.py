"""Runs the agent on cases and scores it beside the rules alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from rerail.assistant.agent.claims import Check
from rerail.assistant.agent.explain import Explanation, explain
from rerail.assistant.agent_tools.facts import JobFacts
from rerail.assistant.agent_tools.lines import ViewSource
from rerail.assistant.record import make_incident
from rerail.evals.agent.cases import AgentCase
from rerail.knowledge_base.taxonomy import leaves
from rerail.settings import Settings


@dataclass(slots=True)
class Row:
    """What one way of answering scored; shares are of the cases that ask.

    `claims_held` counts claims that code has checked (quoted or structured). `itbench` is the sum of
    ITBench's score for root causes: nothing where a true root is missed, else the share of the named
    roots that are true. `planted` and `true_claims` are of the checks, not of a model: for each kind of
    claim how many were made up, and how many of them passed as checked.
    """

    name: str
    cases: int = 0
    type_right: int = 0
    lines_asked: int = 0
    line_right: int = 0
    abstained: int = 0
    claims: int = 0
    claims_held: int = 0
    suggested: int = 0
    itbench: float = 0.0
    planted: dict[str, tuple[int, int]] = field(default_factory=dict)
    true_claims: dict[str, tuple[int, int]] = field(default_factory=dict)
    tokens: int = 0
    calls: int = 0
    seconds: float = 0.0
    cost: float = 0.0
    failed: int = 0
    prompt_log_bytes: list[int] = field(default_factory=list)
    prompt_bytes: list[int] = field(default_factory=list)
    same: int = 0
    compared: int = 0

    def count(
        self,
        case: AgentCase,
        leaf: str | None,
        line: int | None,
        roots: frozenset[str] = frozenset(),
    ) -> None:
        """Count one answer; `roots` are all causes that it names."""
        named = roots | ({leaf} if leaf else set())
        if named & case.types:
            self.itbench += len(named & case.types) / len(named)
        elif case.undecidable and not named:
            self.itbench += 1.0
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
    roots = frozenset(
        leaf for claim in said.claims for leaf in leaves() if claim.text.endswith(f", {leaf}")
    )
    row.count(case, said.failure_type, said.first_fault.line if said.first_fault else None, roots)
    row.claims += len(said.claims)
    row.claims_held += sum(claim.check.counts for claim in said.claims)
    row.suggested += sum(claim.check is Check.SUGGESTED for claim in said.claims)
    row.tokens += said.tokens_in + said.tokens_out
    row.calls += said.calls
    row.seconds += said.seconds
    row.cost += said.cost
    if said.first_prompt_bytes:
        row.prompt_log_bytes.append(said.first_prompt_log_bytes)
        row.prompt_bytes.append(said.first_prompt_bytes)
