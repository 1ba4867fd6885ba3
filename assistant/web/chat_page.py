"""The conversation about an incident, the same as in the terminal: read-only, streamed, also without a model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from fastapi import APIRouter, Depends, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent

from rerail.assistant.chat.lines import Line
from rerail.assistant.chat.messages import load_messages
from rerail.assistant.chat.session import ChatSession
from rerail.assistant.explained import facts_for
from rerail.assistant.response import load_whole
from rerail.assistant.web.application import Pages
from rerail.assistant.web.forms import written_here
from rerail.knowledge_base.store.engine import reading
from rerail.knowledge_base.store.opened import opened_store
from rerail.settings import load_settings

# What a session may do with files of the machine it runs on is for a terminal, not for a page.
_ONLY_IN_A_TERMINAL = ("/export", "/quit", "/exit", "/q")
Question = Annotated[str, Form(min_length=1, max_length=4000)]


def routes(pages: Pages) -> APIRouter:
    """Return the routes of the conversation."""
    router = APIRouter(include_in_schema=False)

    @router.get("/incidents/{name}/chat")
    def conversation(request: Request, name: str) -> HTMLResponse:
        with opened_store() as engine, reading(engine) as connection:
            file = load_whole(connection, name)
            messages = load_messages(connection, file.row.id)
        return pages.page(request, "chat.html", id=file.row.id, messages=messages)

    @router.post("/incidents/{name}/chat")
    def ask(
        name: str, person: Annotated[str, Depends(written_here)], question: Question
    ) -> RedirectResponse:
        for _ in reply(name, question, person):
            pass
        return RedirectResponse(f"/incidents/{name}/chat#end", 303)

    @router.post("/incidents/{name}/chat/stream", response_class=EventSourceResponse)
    def stream(
        name: str, person: Annotated[str, Depends(written_here)], question: Question
    ) -> Iterator[ServerSentEvent]:
        template = pages.templates.get_template("chat_line.html")
        yield ServerSentEvent(
            raw_data=template.render(role="user", text=question, style="", id=name)
        )
        for line in reply(name, question, person):
            text = template.render(role="assistant", text=line.text, style=line.style, id=name)
            yield ServerSentEvent(raw_data=text)

    return router


def reply(name: str, question: str, person: str) -> Iterator[Line]:
    """Yield the answer to one line of input about an incident, as `rerail chat` gives it.

    Raises:
        UsageError: No incident has this id.
    """
    if question.strip().split(" ")[0] in _ONLY_IN_A_TERMINAL:
        yield Line(f"{question.strip().split(' ')[0]} is for the terminal: rerail chat {name}")
        return
    with opened_store() as engine:
        with reading(engine) as connection:
            file = load_whole(connection, name)
        session = ChatSession(file, facts_for(file.incident), load_settings(), engine, user=person)
        yield from session.reply(question)
