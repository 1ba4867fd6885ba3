"""The fleet: what failed on this site in a span of time, counted as `rerail report` does."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from rerail.assistant.fleet import fleet_since
from rerail.assistant.presentation.fleet_page import fleet_values
from rerail.assistant.web.application import Pages

_SPANS = ("24h", "7d", "30d", "365d")


def routes(pages: Pages) -> APIRouter:
    """Return the route of the fleet."""
    router = APIRouter(include_in_schema=False)

    @router.get("/fleet")
    def fleet(request: Request, since: Annotated[str, Query(max_length=40)] = "7d") -> HTMLResponse:
        since = since or "7d"
        view = fleet_since(since)
        return pages.page(
            request,
            "fleet.html",
            since=since,
            spans=_SPANS,
            linked=True,
            **fleet_values(view),
        )

    return router
