"""Signing in with a site's OpenID provider (authorization code with PKCE), by Authlib.

The session that this makes is kept here, in memory: a stolen store holds none, and a restart ends all.
https://openid.net/specs/openid-connect-core-1_0.html section 3.1
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from rerail.errors import ConfigError

BEGIN, BACK, END = "/login", "/login/back", "/logout"
PATHS = (BEGIN, BACK, END)
SESSION_S = 8 * 3600.0
MOST_SESSIONS = 10_000
_STATE_S = 600.0


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider and what it calls us. `url` is where people reach this server; `claim` names a person."""

    issuer: str
    client: str
    secret: str = field(repr=False)
    url: str
    claim: str = "email"

    def check(self) -> None:
        """Refuse addresses over which a session or a token could be read.

        Raises:
            ConfigError: One is neither https:// nor loopback.
        """
        for what, address in (("--oidc", self.issuer), ("--url", self.url)):
            parts = urlsplit(address)
            local = parts.hostname in ("localhost", "127.0.0.1", "::1")
            if parts.scheme != "https" and not (parts.scheme == "http" and local):
                raise ConfigError(
                    f"{what} {address!r} is no https:// address",
                    subject=what,
                    hint="an issuer such as https://login.example.org/realms/site, and https://rerail.site",
                )

    @property
    def is_secure(self) -> bool:
        """Whether people reach the server by TLS, so that cookies never go without it."""
        return self.url.startswith("https://")


@dataclass(slots=True)
class _Held:
    person: str = ""
    until: float = 0.0
    started: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class SignIn:
    """Who is signed in, by the name of the session; and the three addresses of signing in and out."""

    provider: Provider
    _held: OrderedDict[str, _Held] = field(default_factory=OrderedDict)
    _app: Any = None

    def person(self, session: str) -> str:
        """Return who signed in with this session, or nothing."""
        held = self._held.get(session)
        if held is None or held.until < time.monotonic():
            return ""
        return held.person

    def forget(self, session: str) -> None:
        """End a session."""
        self._held.pop(session, None)

    async def begin(self, request: Request, session: str) -> Response:
        """Send the person to the provider."""
        held = self._hold(session, _Held(until=time.monotonic() + _STATE_S))
        held.started["next"] = _own_path(request.query_params.get("next", "/"))
        request.scope["session"] = held.started
        back = self.provider.url.rstrip("/") + BACK
        try:
            answer: Response = await self._client().authorize_redirect(request, back)
        except Exception as error:  # of its HTTP client, of JSON, of missing addresses
            return _failed(f"the provider {self.provider.issuer} does not answer: {_why(error)}")
        return answer

    async def finish(self, request: Request, session: str, fresh: str) -> Response:
        """Take the provider's answer; the person goes on under the session `fresh`, the old one ends.

        State, nonce, PKCE, signature, issuer, audience and time are checked; the state is used once.
        """
        held = self._held.pop(session, None)
        if held is None or held.person or held.until < time.monotonic():
            return _failed("this sign-in was not begun here, or took too long: try again", 403)
        request.scope["session"] = held.started
        options = {
            "iss": {"essential": True, "values": [self.provider.issuer]},
            "aud": {"essential": True, "values": [self.provider.client]},
        }
        try:
            token = await self._client().authorize_access_token(request, claims_options=options)
        except Exception as error:  # of Authlib, its keys, its HTTP client
            return _failed(f"the sign-in was refused: {_why(error)}", 403)
        person, why = self._named(token.get("userinfo") or {})
        if why:
            return _failed(why, 403)
        self._hold(fresh, _Held(person, time.monotonic() + SESSION_S))
        return RedirectResponse(str(held.started.get("next", "/")), 303)

    def _named(self, claims: dict[str, Any]) -> tuple[str, str]:
        """Return who it is, or why that is not known."""
        name = claims.get(self.provider.claim)
        if not isinstance(name, str) or not name.strip():
            return "", f"the provider does not say who this is: no claim {self.provider.claim!r}"
        if self.provider.claim == "email" and claims.get("email_verified") is False:
            return "", "the provider says that this address is not verified"
        # The name stands in audit log and approvals: one line, printable.
        return "".join(one for one in name.strip() if one.isprintable())[:120], ""

    def _hold(self, session: str, held: _Held) -> _Held:
        """Keep a session; the oldest that nobody signed in with makes room."""
        self._held[session] = held
        while len(self._held) > MOST_SESSIONS:
            idle = next((name for name, one in self._held.items() if not one.person), None)
            self._held.pop(idle if idle is not None else next(iter(self._held)))
        return held

    def _client(self) -> Any:
        if self._app is None:
            from authlib.integrations.starlette_client import OAuth

            registry = OAuth()
            registry.register(
                "site",
                client_id=self.provider.client,
                client_secret=self.provider.secret,
                server_metadata_url=self.provider.issuer.rstrip("/")
                + "/.well-known/openid-configuration",
                client_kwargs={
                    "scope": "openid email profile",
                    "code_challenge_method": "S256",
                    "timeout": 10,
                },
            )
            self._app = registry.create_client("site")
        return self._app


def _own_path(given: str) -> str:
    """Return a path of this server to go on with; anything else leads to the list."""
    fine = given.startswith("/") and not given.startswith(("//", "/\\")) and given.isprintable()
    return given[:2000] if fine else "/"


def _why(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _failed(why: str, code: int = 502) -> Response:
    return PlainTextResponse(f"rerail: {why}\n", status_code=code)
