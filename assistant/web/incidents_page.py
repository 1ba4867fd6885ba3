"""The list of incidents: what failed, what stands out, live."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.concurrency import run_in_threadpool

from rerail.assistant.web.application import Pages
from rerail.assistant.web.reading import Filters, overview
from rerail.knowledge_base.taxonomy import leaves

_LOOK_S = 3.0
Word = Annotated[str, Query(max_length=200)]


def routes(pages: Pages) -> APIRouter:
    """Return the routes of the list."""
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    def incidents(
        request: Request,
        q: Word = "",
        type: Word = "",
        node: Word = "",
        job: Word = "",
        since: Word = "",
        healthy: bool = False,
    ) -> HTMLResponse:
        filters = Filters(q, type, node, job, since, healthy)
        query = request.url.query
        return pages.page(
            request,
            "incidents.html",
            found=overview(filters),
            filters=filters,
            types=sorted(leaves()),
            query=f"?{query}" if query else "",
        )

    @router.get("/live", response_class=EventSourceResponse)
    async def live(
        request: Request,
        q: Word = "",
        type: Word = "",
        node: Word = "",
        job: Word = "",
        since: Word = "",
        healthy: bool = False,
    ) -> AsyncIterator[ServerSentEvent]:
        filters = Filters(q, type, node, job, since, healthy)
        template = pages.templates.get_template("rows.html")
        shown = None
        while not await request.is_disconnected():
            found = await run_in_threadpool(overview, filters)
            if found.rows != shown:
                text = template.render(found=found)
                if shown is not None:
                    yield ServerSentEvent(raw_data=text)
                shown = found.rows
            await asyncio.sleep(_LOOK_S)

    return router
