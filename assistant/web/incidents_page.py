"""The list of incidents: what failed, what stands out, live."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import HTMLResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.concurrency import run_in_threadpool

from rerail.assistant.presentation.incident import ListRow
from rerail.assistant.presentation.words import type_words
from rerail.assistant.web.application import Pages
from rerail.assistant.web.reading import Filters, listed, overview
from rerail.errors import RerailError
from rerail.knowledge_base.taxonomy import leaves

_LOOK_S = 3.0
Word = Annotated[str, Query(max_length=200)]


def _filters(
    q: Word = "",
    type: Word = "",
    node: Word = "",
    job: Word = "",
    since: Word = "",
    healthy: bool = False,
) -> Filters:
    return Filters(q, type, node, job, since, healthy)


Wanted = Annotated[Filters, Depends(_filters)]


def _digest(rows: tuple[ListRow, ...]) -> str:
    return sha256(repr(rows).encode()).hexdigest()[:16]


def routes(pages: Pages) -> APIRouter:
    """Return the routes of the list."""
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    def incidents(request: Request, filters: Wanted) -> HTMLResponse:
        query, found = request.url.query, overview(filters)
        return pages.page(
            request,
            "incidents.html",
            found=found,
            seen=_digest(found.rows),
            filters=filters,
            types=sorted(leaves(), key=type_words),
            query=f"{query}&" if query else "",
        )

    @router.get("/live", response_class=EventSourceResponse)
    async def live(
        request: Request, filters: Wanted, seen: Word = ""
    ) -> AsyncIterator[ServerSentEvent]:
        template = pages.templates.get_template("rows.html")
        while not await request.is_disconnected():
            try:
                rows = await run_in_threadpool(listed, filters)
            except RerailError:  # a store that is busy now is asked again; the list stays live
                await asyncio.sleep(_LOOK_S)
                continue
            # What the page held when it was made, not what is there when it connects.
            if (now := _digest(rows)) != seen:
                seen = now
                yield ServerSentEvent(raw_data=template.render(rows=rows))
            await asyncio.sleep(_LOOK_S)

    return router
