"""What stands in front of every page: who asks, from where, with what, how much and how often.

The page shows text that attackers wrote into logs, and it can approve plans. So: only known host
names, only people who are known, one policy of content for all answers, and every change of state
with a token that another site cannot know (OWASP: CSRF, synchroniser token).
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import secrets
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from http.cookies import SimpleCookie
from ipaddress import ip_address
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rerail.assistant.web import sign_in as sign_in_paths
from rerail.assistant.web.account import is_own_account
from rerail.assistant.web.sign_in import SignIn
from rerail.errors import ConfigError

COOKIE = "rerail_session"
MOST_BODY = 1 << 20
_DRAIN_S = 2.0
MOST_UPLOAD = 256 << 20
WRITES_PER_MINUTE = 60
MOST_OPEN = 32
"""Answers of one person that are under way at a time; a page that is live is one of them."""
MOST_TALKS = 16
"""Conversations that are answered at a time, of all people and programs: each holds one of 40 threads."""
BODY_S = 60.0
UPLOAD_S = 900.0
"""Seconds in which a request's body has to be here."""
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_LONGEST_PERSON = 120
_NOBODY = (
    403,
    "this account is not the one that runs the server, the proxy names nobody, or nobody is signed in",
)
_POLICY = (
    "default-src 'self'; script-src 'self' 'nonce-{nonce}'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)


@dataclass(frozen=True, slots=True)
class Access:
    """Where the server listens and whom it believes.

    `user_header` is set by a proxy that has checked who asks, and is believed from `proxies` only.
    `api_token` is what programs show as bearer token; without one, no program is answered. Messages to
    `signed_paths` carry a signature, which their route checks. With `signs_in` people sign in at a provider.
    """

    host: str = "127.0.0.1"
    port: int = 8787
    names: tuple[str, ...] = ()
    user_header: str = ""
    proxies: tuple[str, ...] = ()
    api_token: str = ""
    signed_paths: tuple[str, ...] = ()
    signs_in: bool = False

    def check(self) -> None:
        """Refuse to listen where anybody could ask.

        Raises:
            ConfigError: The address is not loopback and nothing tells who asks.
        """
        if self.signs_in and self.user_header:
            raise ConfigError(
                "who asks is told by a proxy or by a provider, not by both",
                subject="--oidc",
                hint="leave --user-header or --oidc out",
            )
        if not self.is_loopback and not self.user_header and not self.signs_in:
            raise ConfigError(
                f"{self.host} can be reached by others, and nothing tells who asks",
                subject="--host",
                hint="--oidc ISSUER; --user-header NAME --proxy ADDRESS behind a proxy that checks people; or no --host",
            )
        if self.user_header and not self.proxies:
            raise ConfigError(
                "a header that names people is believed from a known proxy only",
                subject="--user-header",
                hint="--proxy ADDRESS",
            )

    @property
    def is_own_account(self) -> bool:
        """Tell whether only the account that runs the server is answered."""
        return self.is_loopback and not self.user_header and not self.signs_in

    @property
    def is_loopback(self) -> bool:
        """Tell whether only this machine can connect."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return False


@dataclass(slots=True)
class Guard:
    """The ASGI layer in front of the application.

    `user` is the account that runs the server; on loopback it is who acts, and connections of other
    accounts of the machine are refused. With `sign_in` it is who signed in at the provider.
    """

    app: ASGIApp
    access: Access
    user: str
    sign_in: SignIn | None = None
    problem: Callable[[Request, int, str], Response] | None = None
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    _writes: dict[str, deque[float]] = field(default_factory=dict)
    _open: Counter[str] = field(default_factory=Counter)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or say why not."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        nonce = secrets.token_urlsafe(16)
        session, is_new = self._session(Headers(scope=scope))
        headed = _with_headers(send, nonce, self._cookie(session) if is_new else "")
        refusal = self._refusal(scope, session)
        if self.sign_in is not None and refusal in (None, _NOBODY):
            answer = await self._signing(self.sign_in, scope, receive, session, refusal)
            if answer is not None:
                response, cookie = answer
                await response(scope, receive, _with_headers(send, nonce, cookie) if cookie else headed)  # fmt: skip
                return
        state = scope.setdefault("state", {})
        state["nonce"], state["token"] = nonce, self._token(session)
        state["person"] = self._person(scope, session)
        state["signed_in"] = self.sign_in is not None
        if refusal is not None:
            if refusal[0] == 413:
                await _drained(receive)
            await self._refused(scope, receive, *refusal)(scope, receive, headed)
            return
        await self._counted(scope, receive, headed)

    def _refused(self, scope: Scope, receive: Receive, code: int, why: str) -> Response:
        """Return a page for somebody who is known and reads pages, else a line of text."""
        reads = "text/html" in Headers(scope=scope).get("accept", "")
        if self.problem is not None and reads and scope["state"]["person"]:
            return self.problem(Request(scope, receive), code, why)
        return PlainTextResponse(f"rerail: {why}\n", status_code=code)

    async def _counted(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, unless too many answers to the same person, or too many conversations, are under way."""
        path: str = scope["path"]
        # What carries a signature in place of a person is one sender; programs with the token are another.
        who = scope["state"]["person"] or ("program" if path.startswith("/v1/") else "signed")
        counted = [(f"of {who}", MOST_OPEN)]
        if scope["method"] == "POST" and path.endswith(("/chat", "/chat/stream", "/completions")):
            counted.append(("talks", MOST_TALKS))
        for what, most in counted:
            if self._open[what] >= most:
                told = f"rerail: {most} answers are under way; close a page that is live, or wait\n"
                refusal = PlainTextResponse(told, status_code=503, headers={"retry-after": "5"})
                await refusal(scope, receive, send)
                return
        self._open.update(what for what, _ in counted)
        try:
            await self.app(scope, _bounded(receive, _most_of(scope), _seconds_of(scope)), send)
        finally:
            self._open -= Counter(what for what, _ in counted)

    def _refusal(self, scope: Scope, session: str) -> tuple[int, str] | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "").rsplit(":", 1)[0].lower()
        own = (*LOOPBACK, self.access.host.lower(), *self.access.names)
        if host not in own:
            return 400, f"the host name {host[:80]!r} is not one of this server's: --name"
        if scope["path"] in self.access.signed_paths and scope["method"] == "POST":
            return None  # the receiver checks length and signature of the raw body
        if self._is_program(scope, headers):
            return self._refused_program(headers)
        person = self._person(scope, session)
        if not person:
            return _NOBODY
        if scope["method"] in ("GET", "HEAD", "OPTIONS"):
            return None
        if too_long := _too_long(headers, _most_of(scope)):
            return too_long
        if not self._from_our_page(headers, session):
            return 403, "the request did not come from a page of this server; load the page again"
        if not self._in_time(person):
            return 429, f"more than {WRITES_PER_MINUTE} changes a minute; wait a moment"
        return None

    async def _signing(
        self,
        sign_in: SignIn,
        scope: Scope,
        receive: Receive,
        session: str,
        refusal: tuple[int, str] | None,
    ) -> tuple[Response, str] | None:
        """Answer the addresses of signing in and out; send whoever asks for a page to sign in.

        Returns the answer and the cookie that it sets, if any; None where the request goes its way.
        """
        path, asks = scope["path"], scope["method"] in ("GET", "HEAD")
        request = Request(scope, receive)
        if path == sign_in_paths.BEGIN and asks:
            return await sign_in.begin(request, session), self._cookie(session)
        if path == sign_in_paths.BACK and asks:
            # Another session than before: one that somebody planted is worth nothing.
            fresh = self._new_session()
            return await sign_in.finish(request, session, fresh), self._cookie(fresh)
        if path == sign_in_paths.END and refusal is None and scope["method"] == "POST":
            given = str((await request.form()).get("token", ""))
            if hmac.compare_digest(given.encode(), self._token(session).encode()):
                sign_in.forget(session)
            return RedirectResponse("/", 303), ""
        if refusal is None or not asks or path.startswith("/api/"):
            return None
        wanted = path + (f"?{scope['query_string'].decode()}" if scope["query_string"] else "")
        return RedirectResponse(f"{sign_in_paths.BEGIN}?next={quote(wanted)}", 303), ""

    def _is_program(self, scope: Scope, headers: Headers) -> bool:
        """Chat clients always are; whoever scrapes may also be the account that runs the server."""
        path: str = scope["path"]
        return path.startswith("/v1/") or (path == "/metrics" and "authorization" in headers)

    def _refused_program(self, headers: Headers) -> tuple[int, str] | None:
        """Programs have no session: a token that no page of another site can send stands for it."""
        kind, _, given = headers.get("authorization", "").partition(" ")
        wanted = self.access.api_token
        fits = hmac.compare_digest(given.strip().encode(), wanted.encode())
        if not wanted or kind.lower() != "bearer" or not fits:
            return 401, "a bearer token is needed: rerail serve --api-token-file FILE"
        if too_long := _too_long(headers, MOST_BODY):
            return too_long
        return None if self._in_time("program") else (429, "too many requests; wait a moment")

    def _from_our_page(self, headers: Headers, session: str) -> bool:
        origin = headers.get("origin")
        if origin is not None and origin.split("://")[-1] != headers.get("host"):
            return False
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return False
        given = headers.get("x-csrf-token") or ""
        return hmac.compare_digest(given.encode(), self._token(session).encode()) or (
            # A form without JavaScript carries the token in its body; the route compares it.
            headers.get("content-type", "").startswith(
                ("application/x-www-form-urlencoded", "multipart/form-data")
            )
        )

    def _person(self, scope: Scope, session: str) -> str:
        if self.sign_in is not None:
            return self.sign_in.person(session)
        client = scope.get("client") or ("", 0)
        if self.access.user_header:
            if client[0] not in self.access.proxies:
                return ""
            # A proxy that adds its header behind one of the client's names two people: nobody.
            named = Headers(scope=scope).getlist(self.access.user_header)
            fine = len(named) == 1 and named[0].isprintable() and len(named[0]) <= _LONGEST_PERSON
            return named[0].strip() if fine else ""
        server = scope.get("server") or ("", 0)
        ours = is_own_account((client[0], int(client[1])), (server[0], int(server[1] or 0)))
        return self.user if ours else ""

    def _in_time(self, person: str) -> bool:
        now = time.monotonic()
        recent = self._writes.setdefault(person, deque())
        while recent and recent[0] < now - 60.0:
            recent.popleft()
        recent.append(now)
        return len(recent) <= WRITES_PER_MINUTE

    def _session(self, headers: Headers) -> tuple[str, bool]:
        """Return the signed session of the browser, and whether it is new."""
        try:
            held = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except Exception:  # a cookie that cannot be read is none
            held = None
        if held is not None:
            name, _, signed = held.value.partition(".")
            if hmac.compare_digest(signed, self._signature(name)):
                return held.value, False
        return self._new_session(), True

    def _new_session(self) -> str:
        name = secrets.token_hex(16)
        return f"{name}.{self._signature(name)}"

    def _cookie(self, session: str) -> str:
        """Return the cookie of a session.

        A provider sends people back from another site, where a strict cookie would not come along; changes of
        state have their token in any case.
        """
        kept = f"{COOKIE}={session}; HttpOnly; Path=/; "
        if self.sign_in is None:
            return kept + "SameSite=Strict"
        return kept + "SameSite=Lax" + ("; Secure" if self.sign_in.provider.is_secure else "")

    def _signature(self, name: str) -> str:
        return hmac.new(self.secret, b"session:" + name.encode(), sha256).hexdigest()

    def _token(self, session: str) -> str:
        return hmac.new(self.secret, b"csrf:" + session.encode(), sha256).hexdigest()


def _most_of(scope: Scope) -> int:
    """Return how many bytes a request may bring: files are uploaded at one place only."""
    return MOST_UPLOAD if scope["path"] == "/diagnose/files" else MOST_BODY


def _seconds_of(scope: Scope) -> float:
    return UPLOAD_S if scope["path"] == "/diagnose/files" else BODY_S


def _too_long(headers: Headers, most: int) -> tuple[int, str] | None:
    length = headers.get("content-length", "0")
    return (
        None
        if length.isdecimal() and int(length) <= most
        else (413, f"the request holds more than {most >> 20} MiB")
    )


def token_fits(request: Request, given: str) -> bool:
    """Tell whether a form's token is the one of this session's pages."""
    fits: bool = hmac.compare_digest(given.encode(), request.state.token.encode())
    return fits


def _bounded(receive: Receive, most: int, seconds: float) -> Receive:
    """Return what a request is read by: too long or too slow a body is as if the client had gone."""
    taken, whole = 0, False
    ends = time.monotonic() + seconds

    async def limited() -> Message:
        nonlocal taken, whole
        try:
            # Behind the body nothing comes but the news that the client has gone: for that is no limit. No task of
            # its own: whoever looks whether the client has gone waits for nothing.
            left = None if whole else max(0.0, ends - time.monotonic())
            async with asyncio.timeout(left):
                message = await receive()
        except TimeoutError:
            return {"type": "http.disconnect"}
        taken += len(message.get("body", b""))
        whole = not message.get("more_body", False)
        if taken > most:
            return {"type": "http.disconnect"}
        return message

    return limited


async def _drained(receive: Receive) -> None:
    """Read what is sent of a body that is too long, within bounds: who is cut off while sending sees no answer."""
    taken = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_S):
            while taken < 4 * MOST_BODY:
                message = await receive()
                taken += len(message.get("body", b""))
                if not message.get("more_body", False):
                    return


def _with_headers(send: Send, nonce: str, cookie: str) -> Send:
    async def headed(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["content-security-policy"] = _POLICY.format(nonce=nonce)
            headers["x-content-type-options"] = "nosniff"
            headers["referrer-policy"] = "same-origin"
            headers["cross-origin-opener-policy"] = "same-origin"
            headers["cross-origin-resource-policy"] = "same-origin"
            headers.setdefault("cache-control", "no-store")
            if cookie:
                headers.append("set-cookie", cookie)
        await send(message)

    return headed
