"""The post-mortem of an incident: drafted from the record, edited in place, exported."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from rerail.assistant.postmortem.document import Document
from rerail.assistant.postmortem.draft import draft
from rerail.assistant.postmortem.kept import keep_draft, last_draft
from rerail.assistant.postmortem.merge import merge, render
from rerail.assistant.postmortem.page import page as to_page
from rerail.assistant.postmortem.page import with_charts
from rerail.assistant.postmortem.rule_words import rule_words
from rerail.assistant.stored import load_incident
from rerail.assistant.web.application import Pages
from rerail.assistant.web.forms import written_here
from rerail.knowledge_base.store.engine import reading, writing
from rerail.knowledge_base.store.incidents import IncidentFile
from rerail.knowledge_base.store.opened import opened_store

MOST = 900_000


def routes(pages: Pages) -> APIRouter:
    """Return the routes of the post-mortem."""
    router = APIRouter(include_in_schema=False)

    @router.get("/incidents/{name}/postmortem")
    def edit(request: Request, name: str, said: str = "") -> HTMLResponse:
        file = load_incident(name)
        text, kept = _present(file)
        return pages.page(
            request, "postmortem.html", id=file.row.id, text=text, kept=kept, said=said[:300]
        )

    @router.post("/incidents/{name}/postmortem")
    def save(
        name: str,
        person: Annotated[str, Depends(written_here)],
        text: Annotated[str, Form(max_length=MOST)],
    ) -> RedirectResponse:
        file = load_incident(name)
        with opened_store() as engine, writing(engine) as connection:
            keep_draft(
                connection, file.row.id, text.replace("\r\n", "\n"), _document(file).words_digest
            )
        return RedirectResponse(f"/incidents/{file.row.id}/postmortem?said=saved", 303)

    @router.get("/incidents/{name}/postmortem.md")
    def markdown(name: str) -> Response:
        file = load_incident(name)
        text = with_charts(_present(file)[0], _document(file).charts)
        return _download(text, f"{file.row.id}.md", "text/markdown")

    @router.get("/incidents/{name}/postmortem.html")
    def html(name: str) -> Response:
        file = load_incident(name)
        text = to_page(_present(file)[0], _document(file).charts)
        return _download(text, f"{file.row.id}.html", "text/html")

    return router


def _document(file: IncidentFile) -> Document:
    return draft(file, rule_words(file))


def _present(file: IncidentFile) -> tuple[str, list[str]]:
    """Return the text as it stands: the last one that was kept, with newer facts; and what was edited."""
    document = _document(file)
    with opened_store() as engine, reading(engine) as connection:
        last = last_draft(connection, file.row.id)
    links = "".join(f"\n\n![{name}](chart-{name}.svg)" for name, _ in document.charts)
    if not last:
        return render(document, links), []
    merged = merge(document, last, links)
    return merged.text, list(merged.kept)


def _download(text: str, name: str, kind: str) -> Response:
    return Response(
        text,
        media_type=f"{kind}; charset=utf-8",
        headers={"content-disposition": f'attachment; filename="{name}"'},
    )
