"""The assistant behind any chat client that speaks OpenAI's chat completions: bearer token, streaming too.

A conversation is about the incident that its messages name last, else the latest one. Answers are
those of `rerail chat`; nothing can be done to a cluster from here.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Iterator
from typing import Any, Literal

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from rerail.assistant.web.chat_page import reply

MODEL = "rerail"
_INCIDENT = re.compile(r"\bINC-[0-9a-z]{4,20}\b", re.IGNORECASE)


class Part(BaseModel):
    """One part of a message; only text is read."""

    model_config = ConfigDict(extra="ignore")
    type: str
    text: str = ""


class Message(BaseModel):
    """One message of the conversation."""

    model_config = ConfigDict(extra="ignore")
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[Part] | None = None

    def text(self) -> str:
        """Return what it says."""
        if isinstance(self.content, list):
            return "\n".join(part.text for part in self.content if part.type == "text")
        return self.content or ""


class Completion(BaseModel):
    """A request for an answer; fields of other models are ignored."""

    model_config = ConfigDict(extra="ignore")
    messages: list[Message] = Field(min_length=1, max_length=500)
    model: str = MODEL
    stream: bool = False


def routes() -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/v1", tags=["chat"])

    @router.get("/models")
    def models() -> dict[str, Any]:
        """Return the one model there is."""
        one = {"id": MODEL, "object": "model", "created": 0, "owned_by": "rerail"}
        return {"object": "list", "data": [one]}

    @router.post("/chat/completions", response_model=None)
    def complete(asked: Completion) -> Response:
        """Answer the last question about the incident that is named last, else about the latest."""
        question = next((m.text() for m in reversed(asked.messages) if m.role == "user"), "")
        if not question.strip():
            return JSONResponse(
                {"error": {"message": "no message of a user", "type": "invalid_request_error"}}, 400
            )
        named = [name for m in asked.messages for name in _INCIDENT.findall(m.text())]
        lines = (
            line.text
            for line in reply(named[-1] if named else "last", question[:4000], "chat client")
        )
        head = {
            "id": f"chatcmpl-{secrets.token_hex(8)}",
            "created": int(time.time()),
            "model": MODEL,
        }
        if asked.stream:
            return StreamingResponse(_chunks(head, lines), media_type="text/event-stream")
        text = "\n".join(lines)
        message = {"role": "assistant", "content": text}
        return JSONResponse(
            {
                **head,
                "object": "chat.completion",
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
            }
        )

    return router


def _chunks(head: dict[str, Any], lines: Iterator[str]) -> Iterator[str]:
    """Yield server-sent events; JSON holds each line, so that no text of a log can end an event."""

    def event(delta: dict[str, str], finish: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        body = {**head, "object": "chat.completion.chunk", "choices": [choice]}
        return f"data: {json.dumps(body)}\n\n"

    yield event({"role": "assistant", "content": ""})
    for line in lines:
        yield event({"content": f"{line}\n"})
    yield event({}, "stop")
    yield "data: [DONE]\n\n"
