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
from rerail.domain.diagnosis import Outcome
from rerail.domain.evidence import LogLine
from rerail.domain.incident import Incident, SnapshotLine
from rerail.log_parsers import window as windows

LINES = 400
# A hint for eyes, on which no verdict rests: names that end so (RuntimeError), and words.
_ERRORS = r"\w*(error|exception)\b|\b(fatal|killed|failed|timeout|timed out|aborted|panic|traceback|xid)\b"
_CLOCK = re.compile(r"[0-2][0-9]:[0-5][0-9]:[0-5][0-9]")
_ABOVE = 3
"""Lines that are shown in front of one that was found."""


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
    marked: int | None = None
    hits: frozenset[int] = frozenset()
    further: int = 0
    """Where the next search begins: behind the marked line, else with this window."""


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
            cited={e.line: e for e in whole.diagnosis.evidence if e.file == file},
            first=first,
            find=find,
            at=at,
            errors=_ERRORS,
            decided=whole.diagnosis.outcome is not Outcome.INCONCLUSIVE,
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
    hit, wanted = None, None
    if find:
        try:
            wanted = windows.compiled(find)
            hit = next(windows.search(path, find, start=offset or 0, most=1), None)
        except ValueError as error:
            note = f"the pattern cannot be used: {error}"
        if hit is not None:
            start, line = windows.before(path, hit, _ABOVE), windows.number_at(path, hit, marks)
        elif not note:
            note = (
                "nothing further is found behind this place"
                if offset
                else "nothing is found in this file"
            )
    window = windows.window_at(source, start, LINES, year=year, marks=marks)
    previous = windows.before(path, window.offset, LINES) if window.offset else 0
    hits = frozenset(
        one.number
        for one in window.lines
        if wanted is not None and wanted.search(one.text.encode())
    )
    further = window.offset
    if line is not None:
        behind = windows.offset_of(path, line + 1, marks)
        # Behind the last line nothing is left to search.
        further = behind if windows.number_at(path, behind, marks) > line else window.size
    return Shown(
        file, window.lines, window.offset, window.after, previous, window.size, True, note, line, hits, further
    )  # fmt: skip


def _kept(stored: StoredSource, file: str, line: int | None) -> Shown:
    lines = tuple(stored.around(file, line or 1, LINES // 4, LINES))
    note = "the file is packed, gone, or has changed: these are the lines that were kept"
    return Shown(file, lines, 0, 0, 0, 0, False, note, line)


def _at_time(path: Path, clock: str) -> tuple[int, str]:
    """Return where the first line with a clock time stands, for the same moment on another rank."""
    wanted = clock[11:19] if "T" in clock else clock[:8]
    hit = next(windows.search(path, re.escape(wanted), most=1), None)
    if hit is not None:
        return hit, ""
    later = _later(wanted)
    hit = next(windows.search(path, later, most=1), None) if later else None
    if hit is not None:
        return hit, f"no line at {clock} in this file; the first one of that hour behind it"
    return 0, f"no line at {clock} in this file"


def _later(clock: str) -> str:
    """Return the pattern of a later time of the same hour, or nothing where this is no time of day."""
    if not _CLOCK.fullmatch(clock):
        return ""
    hour, minute, second = clock[:2], clock[3:5], clock[6:]
    ways = [f"{minute}:{second[0]}[{n}-9]" for n in [int(second[1]) + 1] if n < 10]
    ways += [f"{minute}:[{n}-5][0-9]" for n in [int(second[0]) + 1] if n < 6]
    ways += [f"{minute[0]}[{n}-9]:[0-5][0-9]" for n in [int(minute[1]) + 1] if n < 10]
    ways += [f"[{n}-5][0-9]:[0-5][0-9]" for n in [int(minute[0]) + 1] if n < 6]
    return rf"\b{hour}:(?:{'|'.join(ways)})\b" if ways else ""
