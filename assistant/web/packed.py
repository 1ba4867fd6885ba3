"""Answers packed on their way: a page with its scripts is then a third of what it holds.

Where another site began the request, its length would tell that site what stands in the page beside words of its own
(BREACH, https://www.breachattack.com): such an answer is not packed. Events that stream never are.
"""

from __future__ import annotations

from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

_LEAST = 1024  # bytes below which packing gains nothing
_OWN = (b"same-origin", b"none")
_OPEN = ("/files/", "/own/")  # the same for everybody


class Packed:
    """Packs the answers of an application for requests of its own pages, and its browser files always."""

    def __init__(self, app: ASGIApp) -> None:
        self._plain = app
        self._packed = GZipMiddleware(app, minimum_size=_LEAST)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request (ASGI)."""
        app = self._packed if _may_be_packed(scope) else self._plain
        await app(scope, receive, send)


def _may_be_packed(scope: Scope) -> bool:
    if scope["type"] != "http":
        return False
    begun_by = dict(scope["headers"]).get(b"sec-fetch-site")
    return begun_by in _OWN or str(scope["path"]).startswith(_OPEN)
