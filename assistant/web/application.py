"""The application behind `rerail serve`: its routes, its templates, and the guard in front of both."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from jinja2 import Environment, FileSystemLoader, select_autoescape
from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse
from starlette.staticfiles import StaticFiles

from rerail import __version__
from rerail.assistant.presentation.words import type_words
from rerail.assistant.watch.receiver import PATHS, Receiver
from rerail.assistant.web import browser_files
from rerail.assistant.web.guard import Access, Guard
from rerail.assistant.web.packed import Packed
from rerail.assistant.web.sign_in import SignIn
from rerail.errors import RerailError

_HERE = Path(__file__).parent
_CITED = re.compile(r"(?<=[\[ ])(E\d{1,4})(?=\]|, E\d)")
_OPTION = re.compile(r"(?<!\S)--(?=[a-z])")
_UNTOLD = {404: "there is no such page", 405: "this page cannot be asked in that way"}


@dataclass(frozen=True, slots=True)
class Pages:
    """Renders templates; all text is escaped, whatever log it came from."""

    templates: Environment

    def page(self, request: Request, name: str, status: int = 200, **values: Any) -> HTMLResponse:
        """Return a page with the nonce, the token and the person of this request."""
        template = self.templates.get_template(name)
        text = template.render(
            nonce=request.state.nonce,
            token=request.state.token,
            person=request.state.person,
            signed_in=request.state.signed_in,
            version=__version__,
            **values,
        )
        return HTMLResponse(text, status_code=status)


def create_application(
    access: Access,
    user: str,
    folders: tuple[Path, ...],
    receiver: Receiver | None = None,
    sign_in: SignIn | None = None,
) -> Guard:
    """Return the guarded application.

    Args:
        access: where it listens and whom it believes.
        user: the account that runs it.
        folders: what the start page may diagnose.
        receiver: takes webhooks at this address, too; they are answered nowhere else.
        sign_in: lets people sign in at the site's provider.

    Raises:
        ConfigError: Anybody could ask, or the browser files are missing.
    """
    access = replace(access, signs_in=sign_in is not None)
    access.check()
    browser_files.check()
    app = FastAPI(
        title="rerail",
        version=__version__,
        description="First faults of training jobs. Reading only, but for words of people on verdicts and plans.",
        docs_url=None,
        redoc_url=None,
    )
    environment = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["own"] = _stamp(_HERE / "own")
    environment.globals["type_words"] = type_words
    environment.filters["linked"] = _linked
    pages = Pages(environment)
    from rerail.assistant.web import (
        api,
        chat_page,
        diagnose_page,
        fleet_page,
        incident_page,
        incidents_page,
        log_page,
        metrics,
        openai_face,
        plan_page,
        postmortem_page,
        webhooks,
    )

    if receiver is not None:
        app.include_router(webhooks.routes(receiver))
        access = replace(access, signed_paths=PATHS)
    for routes in (
        incidents_page.routes(pages),
        fleet_page.routes(pages),
        incident_page.routes(pages),
        log_page.routes(pages),
        plan_page.routes(pages),
        postmortem_page.routes(pages),
        chat_page.routes(pages),
        diagnose_page.routes(pages, folders, own_account=access.is_own_account),
        api.routes(),
        openai_face.routes(),
        metrics.routes(),
    ):
        app.include_router(routes)
    app.mount("/files", _Forever(directory=browser_files.FOLDER), name="files")
    app.mount("/own", StaticFiles(directory=_HERE / "own"), name="own")
    app.add_exception_handler(RerailError, _told(pages))
    app.add_exception_handler(HTTPException, _refused(pages))
    app.add_exception_handler(RequestValidationError, _misread(pages))
    return Guard(Packed(app), access, user, sign_in, lambda *refused: _problem(pages, *refused))


def _linked(text: str, incident: str) -> Markup:
    """Return text whose citations, as in [E1, E3], lead to the evidence of an incident; all else is escaped."""
    parts = _CITED.split(text)
    for i in range(1, len(parts), 2):
        parts[i] = Markup('<a href="/incidents/{0}#{1}">{1}</a>').format(incident, parts[i])
    return Markup("").join(parts)


class _Forever(StaticFiles):
    """Files whose names hold their version: a browser asks once."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers["cache-control"] = "public, max-age=31536000, immutable"
        return response


def _stamp(folder: Path) -> str:
    """Return a word that changes when our own browser files do."""
    from hashlib import sha256

    digest = sha256()
    for path in sorted(folder.iterdir()):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _told(pages: Pages) -> Any:
    def handler(request: Request, error: Exception) -> Response:
        assert isinstance(error, RerailError)
        missing = "no incident" in error.message or "no such" in error.message
        # What is an option in a terminal is a field here; whole commands stay as they are.
        message = _OPTION.sub("", error.message)
        hint = error.hint if error.hint.startswith("rerail") else _OPTION.sub("", error.hint)
        return _problem(pages, request, 404 if missing else 400, message, hint)

    return handler


def _refused(pages: Pages) -> Any:
    def handler(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        told = str(error.detail)
        if told == HTTPStatus(error.status_code).phrase:  # the framework's word, not ours
            told = f"{_UNTOLD.get(error.status_code, told)}: {request.url.path}"
        return _problem(pages, request, error.status_code, told, "")

    return handler


def _misread(pages: Pages) -> Any:
    def handler(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        told = "; ".join(f"{one['loc'][-1]}: {one['msg']}" for one in error.errors()[:5])
        return _problem(pages, request, 422, told, "")

    return handler


def _problem(pages: Pages, request: Request, code: int, message: str, hint: str = "") -> Response:
    if request.url.path.startswith(("/api/", "/v1/")):
        return JSONResponse({"error": message, "hint": hint}, status_code=code)
    if request.headers.get("hx-request"):
        return PlainTextResponse(message, status_code=code)
    return pages.page(request, "problem.html", status=code, message=message, hint=hint)
