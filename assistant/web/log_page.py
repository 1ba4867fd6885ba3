"""A window of a log by byte offset, with the ways people move: first fault, next error, search, same time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from rerail.assistant.stored import load_incident
from rerail.assistant.stored_lines import StoredSource
from rerail.assistant.web.application import Pages
from rerail.domain.evidence import LogLine
from rerail.domain.incident import Incident, SnapshotLine
from rerail.log_parsers import window as windows

LINES = 400
_ERRORS = r"\b(error|exception|fatal|killed|failed|timeout|xid)\b"


@dataclass(frozen=True, slots=True)
class Shown:
    """A part of one file: lines, and where the windows before and behind it begin."""

    file: str
    lines: tuple[LogLine | SnapshotLine, ...]
    offset: int
    after: int
    previous: int
    size: int
    live: bool
    note: str = ""


def routes(pages: Pages) -> APIRouter:
    """Return the routes of the log."""
    router = APIRouter(include_in_schema=False)

    @router.get("/incidents/{name}/log")
    def log(
        request: Request,
        name: str,
        file: Annotated[str, Query(max_length=1000)] = "",
        line: Annotated[int | None, Query(ge=1)] = None,
        offset: Annotated[int | None, Query(ge=0)] = None,
        find: Annotated[str, Query(max_length=300)] = "",
        at: Annotated[str, Query(max_length=40)] = "",
    ) -> HTMLResponse:
        whole = load_incident(name).incident
        stored = StoredSource(whole)
        names = stored.files()
        first = whole.diagnosis.first_fault
        if not file:
            file = first.file if first is not None else (names[0] if names else "")
        if (
            line is None
            and offset is None
            and not find
            and first is not None
            and first.file == file
        ):
            line = first.line
        shown = _shown(whole, stored, file, line, offset, find, at)
        return pages.page(
            request,
            "log.html",
            id=whole.id,
            shown=shown,
            files=names,
            marked=line,
            cited={e.line: e for e in whole.diagnosis.evidence if e.file == file},
            first=first,
            find=find,
            errors=_ERRORS,
        )

    return router


def _shown(
    whole: Incident,
    stored: StoredSource,
    file: str,
    line: int | None,
    offset: int | None,
    find: str,
    at: str,
) -> Shown:
    """Return the window that was asked for: the file itself where it lies there, else what was kept."""
    source = stored.lying(file)
    if source is None or source.path is None or not windows.is_plain(source.path):
        return _kept(stored, file, line)
    path, note, marks = source.path, "", stored.marks(file)
    year = int((whole.occurred_at or whole.recorded_at)[:4])
    start = offset or 0
    if line is not None and offset is None:
        start = windows.before(path, windows.offset_of(path, line, marks), LINES // 4)
    if at:
        start, note = _at_time(path, at)
    if find:
        try:
            hit = next(windows.search(path, find, start=offset or 0, most=1), None)
        except ValueError as error:
            hit, note = None, f"the pattern cannot be used: {error}"
        if hit is not None:
            start = hit
        elif not note:
            note = "nothing further is found behind this place"
    window = windows.window_at(source, start, LINES, year=year, marks=marks)
    previous = windows.before(path, window.offset, LINES) if window.offset else 0
    return Shown(file, window.lines, window.offset, window.after, previous, window.size, True, note)


def _kept(stored: StoredSource, file: str, line: int | None) -> Shown:
    lines = tuple(stored.around(file, line or 1, LINES // 4, LINES))
    note = "the file is packed, gone, or has changed: these are the lines that were kept"
    return Shown(file, lines, 0, 0, 0, 0, False, note)


def _at_time(path: Path, clock: str) -> tuple[int, str]:
    """Return where the first line with a clock time stands, for the same moment on another rank."""
    wanted = re.escape(clock[11:19] if "T" in clock else clock[:8])
    hit = next(windows.search(path, wanted, most=1), None)
    return (0, f"no line at {clock} in this file") if hit is None else (hit, "")
