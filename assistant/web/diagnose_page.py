"""The start page: a folder that the server may read, a job, or files dropped here, and the diagnosis as it runs."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends, File, Form, HTTPException, Request, UploadFile
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent

from rerail.assistant.locate.by_name import paths_and_job
from rerail.assistant.locate.job_name import JobName
from rerail.assistant.web.application import Pages
from rerail.assistant.web.forms import written_here
from rerail.errors import RerailError

_MOST_RUNS = 50
_MOST_AT_ONCE = 2
_LOOK_S = 0.3


@dataclass(slots=True)
class Run:
    """One diagnosis that somebody started on the page."""

    name: str
    about: str
    share: float = 0.0
    incident: str = ""
    problem: str = ""
    done: threading.Event = field(default_factory=threading.Event)


@dataclass(slots=True)
class Runs:
    """The diagnoses of this server, the oldest forgotten first."""

    _runs: OrderedDict[str, Run] = field(default_factory=OrderedDict)
    _slots: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(_MOST_AT_ONCE))

    def start(
        self,
        paths: list[str],
        about: str,
        remove: Path | None = None,
        *,
        job: JobName | None = None,
        folders: tuple[Path, ...] = (),
    ) -> Run:
        """Begin to diagnose; `remove` is a folder of ours that goes afterwards.

        Of a `job` only files in `folders`, and those that the policy names, are read.
        """
        import secrets

        run = Run(secrets.token_hex(6), about)
        self._runs[run.name] = run
        while len(self._runs) > _MOST_RUNS:
            self._runs.popitem(last=False)
        work = (run, paths, remove, job, folders)
        threading.Thread(target=self._work, args=work, daemon=True).start()
        return run

    def get(self, name: str) -> Run:
        """Return a run.

        Raises:
            HTTPException: There is none of this name.
        """
        if name not in self._runs:
            raise HTTPException(404, "this diagnosis is not known any more; start it again")
        return self._runs[name]

    def _work(
        self,
        run: Run,
        paths: list[str],
        remove: Path | None,
        job: JobName | None,
        folders: tuple[Path, ...],
    ) -> None:
        from rerail.assistant.locate.by_name import diagnose_and_record

        def progress(read: int, total: int) -> None:
            run.share = read / total if total else 0.0

        try:
            with self._slots:
                _, recorded = diagnose_and_record(paths, job, folders, progress)
            if recorded.incident is not None:
                run.incident = recorded.incident.id
            else:
                run.problem = "; ".join(recorded.banners) or "it could not be kept"
        except RerailError as error:
            run.problem = f"{error.message}" + (f" (try: {error.hint})" if error.hint else "")
        except Exception as error:  # a thread must tell, and not vanish
            run.problem = f"a bug in rerail: {type(error).__name__}: {error}"
        finally:
            if remove is not None:
                shutil.rmtree(remove, ignore_errors=True)
            run.share = 1.0
            run.done.set()


def routes(pages: Pages, folders: tuple[Path, ...]) -> APIRouter:
    """Return the routes; `folders` are all that may be named."""
    router = APIRouter(include_in_schema=False)
    runs = Runs()

    @router.get("/diagnose")
    def start(request: Request) -> HTMLResponse:
        return pages.page(request, "diagnose.html", folders=folders)

    @router.post("/diagnose")
    def by_path(
        person: Annotated[str, Depends(written_here)], path: Annotated[str, Form(max_length=2000)]
    ) -> RedirectResponse:
        allowed, job = paths_and_job([path.strip()], folders)
        run = runs.start(allowed, path, job=job, folders=folders)
        return RedirectResponse(f"/diagnose/{run.name}", 303)

    @router.post("/diagnose/files")
    def by_files(
        person: Annotated[str, Depends(written_here)], files: Annotated[list[UploadFile], File()]
    ) -> RedirectResponse:
        place = Path(tempfile.mkdtemp(prefix="rerail-page-"))
        for number, one in enumerate(files[:2000]):
            name = Path(one.filename or "").name.lstrip(".") or f"file{number}.log"
            target = place / name if not (place / name).exists() else place / f"{number}-{name}"
            with target.open("xb") as out:
                shutil.copyfileobj(one.file, out)
        run = runs.start([str(place)], f"{len(files)} file{'s' * (len(files) != 1)}", place)
        return RedirectResponse(f"/diagnose/{run.name}", 303)

    @router.get("/diagnose/{name}")
    def watch(request: Request, name: str) -> Response:
        run = runs.get(name)
        if run.incident:
            return RedirectResponse(f"/incidents/{run.incident}", 303)
        return pages.page(request, "running.html", run=run)

    @router.get("/diagnose/{name}/live", response_class=EventSourceResponse)
    def live(name: str) -> Iterator[ServerSentEvent]:
        run, told = runs.get(name), -1.0
        while True:
            done = run.done.wait(_LOOK_S)
            if run.share != told:
                told = run.share
                yield ServerSentEvent(event="progress", raw_data=f"{100 * told:.0f}")
            if done:
                yield ServerSentEvent(event="done", raw_data=run.incident or "-")
                return
            time.sleep(0)

    return router
