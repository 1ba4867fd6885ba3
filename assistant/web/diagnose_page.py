"""The start page: a folder that the server may read, a job, or files dropped here, and the diagnosis as it runs."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends, File, Form, HTTPException, Request, UploadFile
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent

from rerail.assistant.locate.job_name import JobName, job_name
from rerail.assistant.readable import discovered, within
from rerail.assistant.web.application import Pages
from rerail.assistant.web.forms import written_here
from rerail.assistant.web.guard import MOST_UPLOAD
from rerail.errors import RerailError
from rerail.log_parsers.text import clean

LOCATE_S = 20.0
"""Seconds for finding the evidence of a job, as `rerail diagnose JOB` takes by itself."""
_MOST_RUNS = 50
_MOST_AT_ONCE = 2
_MOST_FILES = 2000
_LOOK_S = 0.3
_LONGEST_NAME = 60
"""Characters, of four bytes at most: a file system takes 255 bytes."""


@dataclass(slots=True)
class Run:
    """One diagnosis that somebody started on the page."""

    name: str
    about: str
    share: float = 0.0
    incident: str = ""
    problem: str = ""
    doing: str = "Waits for another diagnosis"
    done: threading.Event = field(default_factory=threading.Event)


@dataclass(slots=True)
class Runs:
    """The diagnoses of this server, the oldest forgotten first.

    `folders` are all that is read. Of a job this holds where somebody else than the `own_account` asks, who may
    read what it may read in a terminal.
    """

    folders: tuple[Path, ...]
    own_account: bool
    _runs: OrderedDict[str, Run] = field(default_factory=OrderedDict)
    _slots: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(_MOST_AT_ONCE))

    def start(self, what: list[str] | JobName, about: str, remove: Path | None = None) -> Run:
        """Begin to diagnose paths or a job; `remove` is a folder of ours that goes afterwards."""
        import secrets

        run = Run(secrets.token_hex(6), about)
        self._runs[run.name] = run
        while len(self._runs) > _MOST_RUNS:
            self._runs.popitem(last=False)
        threading.Thread(target=self._work, args=(run, what, remove), daemon=True).start()
        return run

    def get(self, name: str) -> Run:
        """Return a run.

        Raises:
            HTTPException: There is none of this name.
        """
        if name not in self._runs:
            raise HTTPException(404, "this diagnosis is not known any more; start it again")
        return self._runs[name]

    def _work(self, run: Run, what: list[str] | JobName, remove: Path | None) -> None:
        try:
            with self._slots:
                run.incident, run.problem = self._diagnosed(
                    run, what, *([] if remove is None else [remove.resolve()])
                )
        except RerailError as error:
            run.problem = f"{error.message}" + (f" (try: {error.hint})" if error.hint else "")
        except Exception as error:  # a thread must tell, and not vanish
            run.problem = f"a bug in rerail: {type(error).__name__}: {error}"
        finally:
            if remove is not None:
                shutil.rmtree(remove, ignore_errors=True)
            run.share = 1.0
            run.done.set()

    def _diagnosed(self, run: Run, what: list[str] | JobName, *own: Path) -> tuple[str, str]:
        """Return the incident, or why there is none; `own` is a folder of files that were brought along.

        Raises:
            RerailError: There is no such job, or nothing can be read.
        """
        from rerail.assistant.pipeline import diagnose_paths
        from rerail.assistant.record import record_outcome

        def progress(read: int, total: int) -> None:
            run.doing = "Reads"
            run.share = read / total if total else 0.0

        with ExitStack() as held:
            job, attempt = None, None
            if isinstance(what, JobName):
                from rerail.assistant.locate.gather import gather

                allowed = None if self.own_account else self.folders
                run.doing = f"Looks for the evidence of job {what.text}"
                found = held.enter_context(gather(what, LOCATE_S, folders=allowed))
                evidence, paths = found.evidence, sorted(found.paths)
                job, attempt = found.job or None, found.attempt
            else:
                evidence, paths = discovered(what, (*self.folders, *own)), what
            run.doing = "Reads"
            outcome = diagnose_paths([], on_progress=progress, located=evidence)
            recorded = record_outcome(outcome, paths, job=job, attempt=attempt)
        if recorded.incident is not None:
            return recorded.incident.id, ""
        return "", "; ".join(recorded.banners) or "it could not be kept"


def _kept(files: list[UploadFile]) -> Path:
    """Return a folder of ours with files that a browser brought along."""
    place = Path(tempfile.mkdtemp(prefix="rerail-page-"))
    try:
        for number, one in enumerate(files):
            with (place / _name_of(one, number, place)).open("xb") as out:
                shutil.copyfileobj(one.file, out)
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
    return place


def _name_of(file: UploadFile, number: int, place: Path) -> str:
    """Return a name for a file that a browser brings: no folder, nothing hidden, not too long, and its own."""
    given = Path(clean((file.filename or "").encode("utf-8", "replace"))).name
    name = given.replace("\0", "").lstrip(".")[-_LONGEST_NAME:] or f"file{number}.log"
    return name if not (place / name).exists() else f"{number}-{name}"


def routes(pages: Pages, folders: tuple[Path, ...], *, own_account: bool) -> APIRouter:
    """Return the routes; `folders` are all that may be named.

    With `own_account` only the account that runs the server is answered: of a job it reads what it may read in a
    terminal.
    """
    router = APIRouter(include_in_schema=False)
    runs = Runs(folders, own_account)

    @router.get("/diagnose")
    def start(request: Request) -> HTMLResponse:
        return pages.page(request, "diagnose.html", folders=folders, most=MOST_UPLOAD)

    @router.post("/diagnose")
    def by_path(
        person: Annotated[str, Depends(written_here)], path: Annotated[str, Form(max_length=2000)]
    ) -> RedirectResponse:
        path = path.strip()
        job = job_name(path)
        # What exists as a path is a path, whatever else it may be: as in a terminal.
        what = (
            job
            if job is not None and not (folders[0] / path).exists()
            else [str(within(path, folders))]
        )
        return RedirectResponse(f"/diagnose/{runs.start(what, path).name}", 303)

    @router.post("/diagnose/files")
    def by_files(
        person: Annotated[str, Depends(written_here)], files: Annotated[list[UploadFile], File()]
    ) -> RedirectResponse:
        place = _kept(files[:_MOST_FILES])
        run = runs.start([str(place)], f"{len(files)} file{'s' * (len(files) != 1)}", place)
        return RedirectResponse(f"/diagnose/{run.name}", 303)

    @router.get("/diagnose/{name}")
    def watch(request: Request, name: str) -> Response:
        run = runs.get(name)
        if run.incident:
            return RedirectResponse(f"/incidents/{run.incident}", 303)
        return pages.page(request, "running.html", run=run)

    # Behind the first event it is too late to say that there is no such diagnosis.
    @router.get(
        "/diagnose/{name}/live",
        response_class=EventSourceResponse,
        dependencies=[Depends(runs.get)],
    )
    async def live(name: str) -> AsyncIterator[ServerSentEvent]:
        run, told, doing = runs.get(name), -1.0, ""
        while True:
            done = run.done.is_set()
            if run.doing != doing:
                doing = run.doing
                yield ServerSentEvent(event="doing", raw_data=" ".join(doing.split())[:200])
            if run.share != told:
                told = run.share
                yield ServerSentEvent(event="progress", raw_data=f"{100 * told:.0f}")
            if done:
                yield ServerSentEvent(event="done", raw_data=run.incident or "-")
                return
            await asyncio.sleep(_LOOK_S)

    return router
