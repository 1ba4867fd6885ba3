"""Asks the model to explain an incident, and says how its answer stands to the rules' verdict.

Never fails a diagnosis: an endpoint that is absent, slow, broken or lying ends in a banner, and the
verdict of the rules stands as it was printed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ConfigDict

from rerail.assistant.agent.answer import Answer
from rerail.assistant.agent.budget import Budget, BudgetSpentError, budget_from
from rerail.assistant.agent.endpoint import in_words, open_model, refuses_request, within
from rerail.assistant.agent.grounding import Grounded, capped_status, ground
from rerail.assistant.agent.prompt import prompt_id, system_prompt
from rerail.assistant.agent.view import first_view
from rerail.assistant.agent.vote import elect, settled
from rerail.assistant.agent_tools.facts import JobFacts
from rerail.assistant.agent_tools.shown import Shown
from rerail.assistant.agent_tools.tools import Tool, Toolbox
from rerail.domain.diagnosis import Status
from rerail.errors import RerailError
from rerail.settings import Settings


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


class ModelClaim(_Record):
    """One sentence of the model with the lines that show it; `problem` says why it does not count."""

    text: str
    lines: list[str] = []
    problem: str = ""


class ModelLine(_Record):
    """The line that the model takes for the first fault."""

    file: str
    line: int
    text: str


class Explanation(_Record):
    """What the model said, after checking; `banner` is set when it said nothing usable.

    `stand` is agrees, disagrees, adds, abstains or unavailable. `status` is capped by rule and
    never above a hypothesis unless the model agrees with the rules.
    """

    name: str
    prompt_id: str
    stand: str
    failure_type: str | None = None
    status: Status = Status.UNKNOWN
    first_fault: ModelLine | None = None
    summary: str = ""
    summary_problem: str = ""
    claims: list[ModelClaim] = []
    rivals: list[dict[str, str]] = []
    missing: list[str] = []
    problems: list[str] = []
    votes: int = 0
    samples: int = 0
    first_prompt_log_bytes: int = 0
    first_prompt_bytes: int = 0
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float = 0.0
    seconds: float = 0.0
    banner: str = ""


OnEvent = Callable[[str], None]


def explain(
    facts: JobFacts,
    settings: Settings,
    *,
    on_event: OnEvent | None = None,
    blind: bool = False,
) -> Explanation:
    """Return the model's explanation of an incident, or one that says why there is none.

    `blind` hides the rules' verdict from the model; evaluations use it.
    """
    budget = budget_from(settings)
    say = on_event or (lambda _: None)
    samples: list[Grounded] = []
    sizes = (0, 0)
    problem: RerailError | None = None
    wanted = max(1, settings.model_samples)
    for number in range(wanted):
        try:
            grounded, sizes = _sample(facts, settings, budget, number, say, sizes, blind)
            samples.append(grounded)
        except RerailError as error:
            problem = error
            if samples or not error.recoverable or isinstance(error, BudgetSpentError):
                break
            if "JSON" not in error.message and "wrong" not in error.message:
                break
        if settled(samples, wanted):
            break
    used = {
        "name": settings.model,
        "prompt_id": prompt_id(),
        "calls": budget.calls,
        "tokens_in": budget.tokens_in,
        "tokens_out": budget.tokens_out,
        "cost": round(budget.cost, 6),
        "seconds": round(budget.elapsed_s, 2),
        "samples": len(samples),
        "first_prompt_log_bytes": sizes[0],
        "first_prompt_bytes": sizes[1],
    }
    if not samples:
        why = problem.message if problem is not None else "it gave no answer"
        return Explanation(stand="unavailable", banner=f"model unavailable: {why}", **used)
    return _put_together(facts, samples, used)


def _sample(
    facts: JobFacts,
    settings: Settings,
    budget: Budget,
    number: int,
    say: OnEvent,
    sizes: tuple[int, int],
    blind: bool,
) -> tuple[Grounded, tuple[int, int]]:
    """Ask once; every sample sees the same first view under delimiters and handles of its own."""
    budget.check()
    shown = Shown()
    box = Toolbox(facts, shown)
    opening = first_view(facts, shown, blind=blind)
    system = system_prompt(shown)
    if number == 0:
        sizes = (shown.log_bytes, len((system + opening).encode()))
    from rerail.assistant.agent.loop import Guard, ToolUse, ask

    def on_tool(use: ToolUse) -> None:
        say(f"* {call_text(use.name, use.arguments)}  {len(use.result)} bytes  {use.seconds:.1f} s")

    def once(tools: list[Tool], temperature: float | None) -> Answer:
        model = open_model(settings, temperature=temperature)
        guard = Guard(budget, frozenset(t.name for t in tools), on_tool=on_tool)
        return ask(
            model, tools, system=system, opening=opening, guard=guard, form=settings.model_answer
        )

    def work() -> Answer:
        try:
            # The first answer is the model's best guess; the others must be able to differ.
            return once(box.tools(), 0.0 if number == 0 else 0.7)
        except Exception as error:
            if not refuses_request(error):
                raise
            # Some servers take no tools, some models no temperature: the view alone still helps.
            return once([], None)

    try:
        answer = within(budget.left_s, work)
    except Exception as error:  # every client has errors of its own; none may reach the user raw
        raise in_words(error) from error
    return ground(answer, shown), sizes


def call_text(name: str, arguments: dict[str, Any]) -> str:
    """Return a tool call on one line, safe to print."""
    from rerail.assistant.agent.plain import plain_line

    inside = ", ".join(f"{k}={v!r}" for k, v in list(arguments.items())[:4])
    return plain_line(f"{name}({inside})", most=120)


def _put_together(facts: JobFacts, samples: list[Grounded], used: dict[str, Any]) -> Explanation:
    chosen, votes = elect(samples)
    stand, status = capped_status(
        facts.incident.diagnosis, chosen, votes=votes, samples=len(samples)
    )
    first = chosen.first_fault
    return Explanation(
        stand=stand,
        failure_type=chosen.failure_type,
        status=status,
        first_fault=None
        if first is None
        else ModelLine(file=first.file, line=first.number, text=first.text[:600]),
        summary=chosen.summary,
        summary_problem=chosen.summary_problem,
        claims=[
            ModelClaim(text=c.text, lines=list(c.lines), problem=c.problem) for c in chosen.claims
        ],
        rivals=[{"failure_type": leaf, "because": why} for leaf, why in chosen.rivals],
        missing=list(chosen.missing),
        problems=list(chosen.problems),
        votes=votes,
        **used,
    )
