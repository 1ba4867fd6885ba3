"""One run of the agent over one incident: LangChain's agent loop with our tools and our limits.

Only this package imports LangChain, and only when a model is configured.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import BaseTool, StructuredTool
from langsmith import tracing_context
from pydantic import create_model

from rerail.assistant.agent.answer import Answer, read_answer
from rerail.assistant.agent.budget import Budget
from rerail.assistant.agent.endpoint import with_one_retry
from rerail.assistant.agent.names import Names
from rerail.assistant.agent_tools.tools import MOST_BYTES, Tool
from rerail.errors import ModelError

MOST_CALLS_PER_SAMPLE = 8
_LAST = "No further tool call is possible. Answer now, with the JSON object and nothing else."


@dataclass(frozen=True, slots=True)
class ToolUse:
    """One call of a tool, as it is shown to the user: what, how much came back, how long it took."""

    name: str
    arguments: dict[str, Any]
    result: str
    seconds: float
    ok: bool = True


OnTool = Callable[[ToolUse], None]


class Guard(AgentMiddleware[Any, Any, Any]):
    """Counts and bounds what the loop spends; takes the tools away for the last request."""

    def __init__(
        self,
        budget: Budget,
        known: frozenset[str],
        *,
        on_tool: OnTool | None = None,
        most_calls: int = MOST_CALLS_PER_SAMPLE,
        last_word: str = _LAST,
        names: Names | None = None,
    ) -> None:
        super().__init__()
        self.budget = budget
        self.calls = 0
        self._known = known
        self._on_tool = on_tool
        self._most_calls = most_calls
        self._last_word = last_word
        self._names = names

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Send one request if the budget allows it."""
        self.budget.check()
        self.calls += 1
        self.budget.calls += 1
        last = (
            self.calls >= self._most_calls
            or self.budget.calls >= self.budget.max_calls
            or self.budget.tokens > 0.8 * self.budget.max_tokens
        )
        if self.calls > self._most_calls:
            raise ModelError(
                "the model went on calling tools without an answer",
                subject="tools",
                hint="try another model",
            )
        settings = {**request.model_settings, "timeout": max(1.0, self.budget.left_s)}
        changes: dict[str, Any] = {"model_settings": settings}
        if last:
            changes["tools"] = []
            changes["messages"] = [*request.messages, HumanMessage(self._last_word)]
        if self._names is not None:
            messages = changes.get("messages", request.messages)
            for message in messages:
                self._names.hide_all(message.content)  # a later message may tell what a name is
            changes["messages"] = [_with_names(m, self._names.hide_all) for m in messages]
        asked = request.override(**changes)
        response = with_one_retry(lambda: handler(asked), self.budget.left_s)
        response = replace(response, result=[_with_whole_calls(m) for m in response.result])
        if self._names is not None:
            response = replace(
                response,
                result=[_with_names(m, self._names.restore_all) for m in response.result],
            )
        for message in response.result:
            self._count(message, request)
        return response

    def _count(self, message: Any, request: Any) -> None:
        if not isinstance(message, AIMessage):
            return
        usage = message.usage_metadata
        if usage is not None:
            self.budget.spend(usage["input_tokens"], usage["output_tokens"])
        else:
            # A server that reports no usage is counted by size: four bytes a token.
            size = sum(len(str(m.content)) for m in request.messages)
            self.budget.spend(size // 4, len(str(message.content)) // 4)

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Run one tool; an error of the tool is an answer to the model, not to the user."""
        call = request.tool_call
        began = time.monotonic()
        result = handler(request)
        if self._on_tool is not None:
            self._on_tool(
                ToolUse(
                    str(call["name"])[:60],
                    arguments_of(call.get("args")),
                    str(getattr(result, "content", "")),
                    time.monotonic() - began,
                    ok=call["name"] in self._known,
                )
            )
        return result


def _with_names(message: Any, change: Callable[[Any], Any]) -> Any:
    """Return a message with the names in its text and in the arguments of its calls changed."""
    update: dict[str, Any] = {"content": change(message.content)}
    if getattr(message, "tool_calls", None):
        update["tool_calls"] = [
            {**call, "args": change(call["args"])} for call in message.tool_calls
        ]
    return message.model_copy(update=update)


def _with_whole_calls(message: Any) -> Any:
    """Make calls of those that a streamed answer wrote with valid JSON and no object as arguments."""
    calls, broken = [], []
    for call in getattr(message, "invalid_tool_calls", None) or ():
        try:
            arguments = arguments_of(json.loads(call["args"] or "null"))
        except ValueError:
            broken.append(call)  # the loop has an answer of its own to broken JSON
        else:
            calls.append(
                {"name": call["name"], "args": arguments, "id": call["id"], "type": "tool_call"}
            )
    if not calls:
        return message
    return message.model_copy(
        update={"tool_calls": [*message.tool_calls, *calls], "invalid_tool_calls": broken}
    )


def arguments_of(raw: Any) -> dict[str, Any]:
    """Return the arguments of a call as a mapping, whatever a model wrote there."""
    return raw if isinstance(raw, dict) else {"arguments": raw} if raw else {}


def as_langchain(tools: list[Tool]) -> list[BaseTool]:
    """Return the tools in LangChain's form; what they raise becomes words for the model."""
    return [_as_langchain(tool) for tool in tools]


def _as_langchain(tool: Tool) -> BaseTool:
    from pydantic import Field

    fields: dict[str, Any] = {}
    for name, (kind, about) in tool.arguments.items():
        if name in ("file", "before", "after"):
            fields[name] = (kind, Field(default="" if kind is str else 10, description=about))
        else:
            fields[name] = (kind, Field(description=about))

    def call(**arguments: Any) -> str:
        try:
            return tool.call(**arguments)[: MOST_BYTES + 1_000]
        except (TypeError, ValueError, KeyError) as error:
            return f"the tool could not be used like that: {type(error).__name__}"

    return StructuredTool.from_function(
        func=call,
        name=tool.name,
        description=tool.about,
        args_schema=create_model(f"{tool.name}_arguments", **fields),
        handle_tool_error=True,
        handle_validation_error="the arguments are not what the tool takes",
    )


def ask(
    model: BaseChatModel,
    tools: list[Tool],
    *,
    system: str,
    opening: str,
    guard: Guard,
    form: str = "text",
    watch: Callable[[AIMessage], None] | None = None,
) -> Answer:
    """Run the loop until the model answers.

    Args:
        model: the chat model.
        tools: what it may look at.
        system: the system prompt.
        opening: the first message.
        guard: the limits.
        form: how the answer is asked for: text, tool or schema.
        watch: called with each piece of an answer of a model that streams.

    Raises:
        ModelError: when the answer is not of the form, or a limit is reached.
        Exception: whatever the endpoint's client raises; see `endpoint.in_words`.
    """
    strategy: Any = None
    if form == "tool":
        strategy = ToolStrategy(Answer)
    elif form == "schema":
        strategy = ProviderStrategy(Answer)
    agent = create_agent(
        model,
        as_langchain(tools),
        system_prompt=system,
        middleware=[guard],
        response_format=strategy,
    )
    # A trace would carry log text to whatever service the environment names.
    with tracing_context(enabled=False):
        state: dict[str, Any] = {}
        modes: list[Literal["values", "messages"]] = ["values"]
        if watch is not None:
            modes.append("messages")
        mode: Any
        piece: Any
        for mode, piece in agent.stream(
            {"messages": [HumanMessage(opening)]},
            stream_mode=modes,
            config={"recursion_limit": 4 * MOST_CALLS_PER_SAMPLE + 4},
        ):
            if mode == "values":
                state = piece
            elif watch is not None and isinstance(piece[0], AIMessage):
                watch(piece[0])
    structured = state.get("structured_response")
    if isinstance(structured, Answer):
        return structured
    return read_answer(_text_of(state["messages"][-1]))


def _text_of(message: Any) -> str:
    return str(message.text if isinstance(message, AIMessage) else message.content)


def stream_chat(
    model: BaseChatModel,
    tools: list[Tool],
    *,
    system: str,
    messages: list[Any],
    guard: Guard,
) -> Iterator[str]:
    """Yield the text of a chat answer as it arrives.

    Raises:
        ModelError: when a limit is reached.
        Exception: whatever the endpoint's client raises.
    """
    agent = create_agent(model, as_langchain(tools), system_prompt=system, middleware=[guard])
    with tracing_context(enabled=False):
        for chunk, _ in agent.stream(
            {"messages": messages},
            stream_mode="messages",
            config={"recursion_limit": 4 * MOST_CALLS_PER_SAMPLE + 4},
        ):
            if isinstance(chunk, AIMessage) and (text := str(chunk.text)):
                yield text
