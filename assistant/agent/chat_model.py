"""LangChain's client, made to survive what models write where arguments of a tool belong."""

from __future__ import annotations

import json
from typing import Any

from langchain_openai import ChatOpenAI


class EndpointModel(ChatOpenAI):
    """The chat model of an OpenAI-compatible endpoint."""

    def _create_chat_result(
        self, response: Any, generation_info: dict[str, Any] | None = None
    ) -> Any:
        body = response if isinstance(response, dict) else response.model_dump()
        for choice in body.get("choices") or []:
            message = choice.get("message") if isinstance(choice, dict) else None
            for call in (message or {}).get("tool_calls") or []:
                _mend(call.get("function") if isinstance(call, dict) else None)
        return super()._create_chat_result(body, generation_info)


def _mend(function: Any) -> None:
    """Make an object of arguments that are valid JSON and none: the tool then says what it takes."""
    if not isinstance(function, dict):
        return
    raw = function.get("arguments")
    try:
        value = json.loads(raw) if isinstance(raw, str) else raw
    except ValueError:
        return  # the client has an answer of its own to broken JSON
    if not isinstance(value, dict):
        function["arguments"] = json.dumps({} if value is None else {"arguments": value})
