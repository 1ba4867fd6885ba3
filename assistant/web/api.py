"""The JSON answers for programs, described by OpenAPI; reading only."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel

from rerail.assistant.fleet import fleet_since
from rerail.assistant.presentation.fleet import FleetView
from rerail.assistant.presentation.incident import ListRow
from rerail.assistant.stored import load_incident
from rerail.assistant.stored_lines import StoredSource
from rerail.assistant.web.reading import Filters, listed
from rerail.domain.diagnosis import Diagnosis
from rerail.domain.incident import RankFact, SeriesSnapshot, SnapshotLine, TimelineEntry

Name = Annotated[str, Path(max_length=80)]


class Problem(BaseModel):
    """Why a request was not answered, and what to try."""

    error: str
    hint: str = ""


_ERRORS: dict[int | str, dict[str, object]] = {
    400: {"model": Problem},
    404: {"model": Problem},
    422: {"model": Problem},
}


def routes() -> APIRouter:
    """Return the routes of the JSON answers."""
    router = APIRouter(prefix="/api", tags=["incidents"])

    @router.get("/incidents", responses=_ERRORS)
    def incidents(
        q: Annotated[str, Query(max_length=200)] = "",
        failure_type: Annotated[str, Query(max_length=80)] = "",
        node: Annotated[str, Query(max_length=200)] = "",
        job: Annotated[str, Query(max_length=200)] = "",
        since: Annotated[str, Query(max_length=40)] = "",
        healthy: bool = False,
    ) -> list[ListRow]:
        """Return the incidents that fit, the latest first, 200 at most."""
        return list(listed(Filters(q, failure_type, node, job, since, healthy)))

    @router.get("/fleet", responses=_ERRORS)
    def fleet(since: Annotated[str, Query(max_length=40)] = "7d") -> FleetView:
        """Return what failed since a time, counted: what `rerail report --json` prints."""
        return fleet_since(since)

    @router.get("/incidents/{name}", responses=_ERRORS)
    def diagnosis(name: Name) -> Diagnosis:
        """Return the latest diagnosis of an incident."""
        return load_incident(name).diagnosis

    @router.get("/incidents/{name}/timeline", responses=_ERRORS)
    def timeline(name: Name) -> list[TimelineEntry]:
        """Return everything that was noted on an incident, in order of time."""
        return list(load_incident(name).timeline)

    @router.get("/incidents/{name}/ranks", responses=_ERRORS)
    def ranks(name: Name) -> list[RankFact]:
        """Return what is known of each rank."""
        return list(load_incident(name).incident.snapshot.ranks)

    @router.get("/incidents/{name}/series", responses=_ERRORS)
    def series(name: Name) -> list[SeriesSnapshot]:
        """Return the kept series: step time, loss, gradient norm."""
        return list(load_incident(name).incident.snapshot.series)

    @router.get("/incidents/{name}/lines", responses=_ERRORS)
    def lines(
        name: Name,
        file: Annotated[str, Query(max_length=1000)],
        line: Annotated[int, Query(ge=1, le=1 << 40)],
        before: Annotated[int, Query(ge=0, le=200)] = 10,
        after: Annotated[int, Query(ge=0, le=200)] = 20,
    ) -> list[SnapshotLine]:
        """Return the lines around one, masked as everywhere."""
        return StoredSource(load_incident(name).incident).around(file, line, before, after)

    return router
