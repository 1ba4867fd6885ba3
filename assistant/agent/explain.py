"""Asks the model to explain an incident, and says how its answer stands to the rules' verdict.

Never fails a diagnosis: an endpoint that is absent, slow, broken or lying ends in a banner, and the
verdict of the rules stands as it was printed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from rerail.assistant.agent.answer import Answer
from rerail.assistant.agent.budget import Budget, BudgetSpentError, budget_from
from rerail.assistant.agent.claims import Check, CheckedClaim, Claim
from rerail.assistant.agent.endpoint import Manner, in_words, load_client, open_model, within
from rerail.assistant.agent.grounding import Grounded, capped_status, check_claim, ground
from rerail.assistant.agent.names import Names, names_for
from rerail.assistant.agent.prompt import LAST_WORD, prompt_id, system_prompt
from rerail.assistant.agent.view import first_view
from rerail.assistant.agent.vote import elect, settled
from rerail.assistant.agent_tools.facts import JobFacts
from rerail.assistant.agent_tools.shown import Shown
from rerail.assistant.agent_tools.tools import Tool, Toolbox
from rerail.domain.diagnosis import Status
from rerail.errors import RerailError
from rerail.settings import Settings

if TYPE_CHECKING:
    from rerail.assistant.agent.arriving import Arriving


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


class ModelClaim(_Record):
    """One sentence with the lines it cites and how far code has checked it; `problem` says why no further."""

    text: str
    lines: list[str] = []
    problem: str = ""
    check: Check = Check.CITED


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
    summary_checks: list[ModelClaim] = []
    summary_problem: str = ""
    summary_lines: list[str] = []
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
OnClaim = Callable[[ModelClaim], None]


def explain(
    facts: JobFacts,
    settings: Settings,
    *,
    on_event: OnEvent | None = None,
    on_claim: OnClaim | None = None,
    blind: bool = False,
    budget: Budget | None = None,
) -> Explanation:
    """Return the model's explanation of an incident, or one that says why there is none.

    `blind` hides the rules' verdict from the model; evaluations use it. `budget` can be watched while
    it is spent. `on_claim` gets each claim of the first sample as soon as it has arrived and is
    checked, in another thread; which sample speaks for all is known at the end only.
    """
    load_client()
    budget = budget or budget_from(settings)
    budget.started = time.monotonic()
    say = on_event or (lambda _: None)
    samples: list[Grounded] = []
    sizes = (0, 0)
    problem: RerailError | None = None
    wanted = max(1, settings.model_samples)
    # One delimiter and one manner for all samples: a server then reads an equal prompt only once.
    nonce = Shown().nonce
    manner = Manner(form=settings.model_answer, stream=on_claim is not None)
    for number in range(wanted):
        try:
            asked = _Sample(number, nonce, manner, blind, None if samples else on_claim)
            manner.stream = manner.stream and asked.on_claim is not None
            grounded, sizes = _sample(facts, settings, budget, asked, say)
            samples.append(grounded)
        except RerailError as error:
            problem = problem or error
            # Few servers refuse to hold the model to JSON; most models do without, and tools need it off.
            if manner.json is False and "JSON" in error.message:
                manner.json, manner.tools = True, False
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


@dataclass(frozen=True, slots=True)
class _Sample:
    """One of the samples of a run: its number, the delimiter, and how the server wants to be asked."""

    number: int
    nonce: str
    manner: Manner
    blind: bool
    on_claim: OnClaim | None = None


def _arriving(
    facts: JobFacts, shown: Shown, budget: Budget, names: Names | None, on_claim: OnClaim
) -> Arriving:
    from rerail.assistant.agent.arriving import Arriving

    def take(claim: Claim) -> None:
        if names is not None:
            claim = Claim.model_validate(names.restore_all(claim.model_dump()))
        for one in check_claim(claim, shown, facts.incident.diagnosis):
            on_claim(_claim(one))

    return Arriving(take, budget)


def _sample(
    facts: JobFacts, settings: Settings, budget: Budget, sample: _Sample, say: OnEvent
) -> tuple[Grounded, tuple[int, int]]:
    """Ask once, and again with less where the server refuses the form or the size of the request.

    Returns the checked answer, and the bytes of log and of everything in the first prompt.
    """
    from rerail.assistant.agent.loop import Guard, ToolUse, ask

    def on_tool(use: ToolUse) -> None:
        say(f"* {call_text(use.name, use.arguments)}  {len(use.result)} bytes  {use.seconds:.1f} s")

    manner = sample.manner
    while True:
        budget.check()
        shown = Shown(nonce=sample.nonce)
        opening = first_view(facts, shown, blind=sample.blind, small=manner.small)
        opening = f"{opening}\n\n{LAST_WORD}"
        system = system_prompt(shown, small=manner.small)
        sizes = (shown.log_bytes, len((system + opening).encode()))
        tools = Toolbox(facts, shown).tools() if manner.tools else []
        # The first answer is the model's best guess; the others must be able to differ.
        temperature = (0.0 if sample.number == 0 else 0.7) if manner.temperature else None
        names = names_for(settings, facts)
        guard = Guard(budget, frozenset(t.name for t in tools), on_tool=on_tool, names=names)
        arriving = None
        if manner.stream and sample.on_claim is not None:
            arriving = _arriving(facts, shown, budget, names, sample.on_claim)

        def work(
            tools: list[Tool] = tools,
            temperature: float | None = temperature,
            guard: Guard = guard,
            texts: tuple[str, str] = (system, opening),
            arriving: Arriving | None = arriving,
        ) -> Answer:
            model = open_model(
                settings,
                temperature=temperature,
                streaming=arriving is not None,
                small=manner.small,
                json=manner.json,
            )
            return ask(
                model,
                tools,
                system=texts[0],
                opening=texts[1],
                guard=guard,
                form=manner.form,
                watch=None if arriving is None else arriving.watch,
            )

        try:
            answer = within(budget.left_s, work, limit_s=budget.max_s)
            if names is not None:
                answer = Answer.model_validate(names.restore_all(answer.model_dump()))
            return ground(answer, shown, facts.incident.diagnosis), sizes
        except (
            Exception
        ) as error:  # every client has errors of its own; none may reach the user raw
            if isinstance(error, RerailError) or not manner.yields_to(error):
                raise in_words(error) from error
        finally:
            if arriving is not None:
                arriving.close()


def call_text(name: str, arguments: dict[str, Any]) -> str:
    """Return a tool call on one line, safe to print."""
    from rerail.assistant.agent.plain import plain_line

    inside = ", ".join(f"{k}={v!r}" for k, v in list(arguments.items())[:4])
    return plain_line(f"{name}({inside})", most=120)


def _claim(one: CheckedClaim) -> ModelClaim:
    return ModelClaim(text=one.text, lines=list(one.lines), problem=one.problem, check=one.check)


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
        summary_lines=list(chosen.summary_lines),
        claims=[_claim(c) for c in chosen.claims],
        summary_checks=[_claim(c) for c in chosen.summary_checks],
        rivals=[{"failure_type": leaf, "because": why} for leaf, why in chosen.rivals],
        missing=list(chosen.missing),
        problems=list(chosen.problems),
        votes=votes,
        **used,
    )
