"""One incident: verdict, evidence, timeline, ranks and curves, and a person's word on it."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Depends, Form, Request
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse

from rerail.assistant.chat.messages import load_messages
from rerail.assistant.feedback import give_feedback
from rerail.assistant.postmortem.charts import charts
from rerail.assistant.presentation.curves import with_rate
from rerail.assistant.presentation.incident import incident_view
from rerail.assistant.presentation.markdown import to_markdown
from rerail.assistant.presentation.timeline_axis import timeline_axis
from rerail.assistant.presentation.words import type_words
from rerail.assistant.stored import load_incident
from rerail.assistant.web.application import Pages
from rerail.assistant.web.forms import written_here
from rerail.assistant.web.plan_page import plan_of
from rerail.knowledge_base.store.alike import alike
from rerail.knowledge_base.store.engine import reading
from rerail.knowledge_base.store.incidents import IncidentFile
from rerail.knowledge_base.store.opened import opened_store
from rerail.knowledge_base.taxonomy import leaves

_PARTS = ("quiet", "consequence", "reported", "suspect")


def routes(pages: Pages) -> APIRouter:
    """Return the routes of one incident."""
    router = APIRouter(include_in_schema=False)

    @router.get("/incidents/{name}")
    def show(request: Request, name: str, said: str = "") -> HTMLResponse:
        file = load_incident(name)
        with opened_store() as engine, reading(engine) as connection:
            like = alike(connection, file.row, limit=5)
            messages = load_messages(connection, file.row.id)
        view = incident_view(file)
        return pages.page(
            request,
            "incident.html",
            view=view,
            axis=timeline_axis(view.timeline),
            id=view.id,
            messages=messages,
            plan=plan_of(name),
            alike=like,
            entity=file.row.entity,
            drawn=[(n, svg) for n, svg in charts(with_rate(file.incident)) if n not in ("ranks",)],
            types=sorted(leaves(), key=type_words),
            said=said[:400],
        )

    @router.get("/incidents/{name}/ranks.json")
    def ranks(name: str) -> JSONResponse:
        return JSONResponse(rank_columns(load_incident(name)))

    @router.get("/incidents/{name}/series.json")
    def series(name: str) -> JSONResponse:
        file = load_incident(name)
        last = file.diagnosis.progress.get("last_step")
        return JSONResponse(
            {
                "failed_at": last if isinstance(last, int) else None,
                "series": [
                    {
                        "name": s.name,
                        "rank": s.rank,
                        "step": s.step,
                        "value": s.value,
                        "time": s.time,
                    }
                    for s in with_rate(file.incident).snapshot.series
                ],
            }
        )

    @router.get("/incidents/{name}/markdown")
    def markdown(name: str) -> PlainTextResponse:
        return PlainTextResponse(to_markdown(incident_view(load_incident(name))))

    @router.post("/incidents/{name}/feedback")
    def feedback(
        name: str,
        person: Annotated[str, Depends(written_here)],
        verdict: Annotated[Literal["right", "partly", "wrong"], Form()],
        failure_type: Annotated[str, Form(max_length=80)] = "",
        first_fault: Annotated[str, Form(max_length=500)] = "",
        note: Annotated[str, Form(max_length=2000)] = "",
    ) -> RedirectResponse:
        told = give_feedback(
            name,
            verdict=verdict,
            failure_type=failure_type or None,
            first_fault=first_fault or None,
            note=note,
            by=person,
        )
        found = told[0].partition(":")[0]
        return RedirectResponse(f"/incidents/{found}?said={quote('; '.join(told))}#said", 303)

    return router


def rank_columns(file: IncidentFile) -> dict[str, Any]:
    """Return the ranks as columns, sorted by rank: small enough for 100,000 of them."""
    facts = sorted(file.incident.snapshot.ranks, key=lambda f: f.rank)
    nodes: dict[str, int] = {}
    for fact in facts:
        nodes.setdefault(fact.node or "", len(nodes))
    return {
        "parts": _PARTS,
        "nodes": list(nodes),
        "rank": [f.rank for f in facts],
        "node": [nodes[f.node or ""] for f in facts],
        "part": [_PARTS.index(f.part) for f in facts],
        "last": [f.last_step for f in facts],
    }
