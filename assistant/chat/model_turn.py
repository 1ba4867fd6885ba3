"""One question to the model in a chat, run in a thread of its own so that Ctrl-C is never waited for."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rerail.assistant.agent.budget import Budget
from rerail.assistant.agent.endpoint import Manner, open_model
from rerail.assistant.agent.names import Names
from rerail.assistant.agent.prompt import CHAT_TASK
from rerail.assistant.agent.view import first_view
from rerail.assistant.agent_tools.facts import JobFacts
from rerail.assistant.agent_tools.shown import Shown
from rerail.assistant.agent_tools.tools import Tool
from rerail.assistant.chat.lines import Line
from rerail.errors import ModelError, RerailError
from rerail.settings import Settings

Arrived = queue.Queue[str | Line | BaseException | None]
_LAST = "No further tool call is possible. Answer the question now."
_SMALL_TURNS = 2


@dataclass(frozen=True, slots=True)
class Turn:
    """What one question needs. `earlier` are (role, text) pairs of the conversation before it."""

    facts: JobFacts
    shown: Shown
    settings: Settings
    manner: Manner
    budget: Budget
    question: str
    earlier: list[tuple[str, str]]
    names: Names | None = None


def start(turn: Turn, tools: Callable[[Callable[[Line], None]], list[Tool]]) -> Arrived:
    """Ask in a thread; return the queue on which text, marks of tools, an error or the end arrive."""
    arrived: Arrived = queue.Queue()

    def work() -> None:
        try:
            _ask_until_taken(turn, tools, arrived)
            arrived.put(None)
        except BaseException as error:  # handed to the reader of the queue
            arrived.put(error)

    threading.Thread(target=work, daemon=True, name="rerail-chat").start()
    return arrived


def arriving(arrived: Arrived, budget: Budget, marks: list[Line]) -> Iterator[str]:
    """Yield text as it arrives and collect the marks of tools.

    Raises:
        ModelError: when the seconds are over.
        Exception: whatever the endpoint's client raises.
    """
    while True:
        try:
            item = arrived.get(timeout=max(0.01, budget.left_s))
        except queue.Empty:
            raise ModelError(
                f"the model did not finish within {budget.max_s:g} s",
                subject="seconds",
                hint="raise RERAIL_MODEL_MAX_SECONDS",
            ) from None
        if item is None:
            return
        if isinstance(item, BaseException):
            raise item
        if isinstance(item, Line):
            marks.append(item)
            yield "\n"
        else:
            yield item


def _ask_until_taken(
    turn: Turn, tools: Callable[[Callable[[Line], None]], list[Tool]], arrived: Arrived
) -> None:
    while True:
        began = False
        try:
            for chunk in _attempt(turn, tools(arrived.put) if turn.manner.tools else []):
                began = True
                arrived.put(chunk)
            return
        except Exception as error:
            # Words that were printed cannot be taken back: only a clean start is repeated.
            if began or isinstance(error, RerailError) or not turn.manner.yields_to(error):
                raise


def _attempt(turn: Turn, tools: list[Tool]) -> Iterator[str]:
    from rerail.assistant.agent.loop import Guard, stream_chat

    manner = turn.manner
    opening = first_view(turn.facts, turn.shown, small=manner.small)
    earlier = turn.earlier[-_SMALL_TURNS:] if manner.small else turn.earlier
    guard = Guard(
        turn.budget,
        frozenset(t.name for t in tools),
        most_calls=6,
        last_word=_LAST,
        names=turn.names,
    )
    model = open_model(
        turn.settings,
        temperature=0.0 if manner.temperature else None,
        streaming=True,
        small=manner.small,
    )
    system = CHAT_TASK.format(nonce=turn.shown.nonce, incident=turn.facts.incident.id)
    messages = [("user", opening), *earlier, ("user", turn.question)]
    yield from stream_chat(model, tools, system=system, messages=messages, guard=guard)
